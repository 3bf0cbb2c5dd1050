"""The updater: a thread that turns release maps into the model that serves."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from edge_agent.errors import RejectedUpdate, StorageError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox
from edge_agent.ota.activation import Activation
from edge_agent.ota.command_keys import verify_signature
from edge_agent.ota.fetching import BlobFetcher, BlobSource, Superseded, backoff_s
from edge_agent.ota.floors import Floors
from edge_agent.ota.journal import OtaJournal
from edge_agent.ota.map_inbox import MapInbox
from edge_agent.ota.slot import Slot
from edge_agent.ota.staging import Staging
from edge_agent.ota.startup import Startup
from edge_agent.ota.target import Target, place_of, target_of
from edge_agent.ota.transitions import OtaEvent, OtaState
from edge_agent.ota.trust import TrustedReleases, VerifiedMap
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.serving.server import ModelServer
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages.event import ErrorEvent
from edge_agent.wire.messages.state import ClockTrust, TrustedVersions
from edge_agent.wire.release import (
    FLEET_TARGET,
    MEMBERSHIP_TARGET,
    CohortTarget,
    FleetTarget,
    cohort_target,
    decode_membership,
)

IDLE_STEP_S = 60.0
CLOCK_RECHECK_S = 300.0
_UNFIT = ("unfit_bundle", "unfit_weights", "unfit")
_IN_WORK = (OtaState.VERIFYING, OtaState.FETCHING)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the updater works with; the runtime builds and owns them."""

    database: Database
    outbox: Outbox
    floors: Floors
    trusted: TrustedReleases
    store: WeightsStore
    server: ModelServer
    downloads: BlobSource


class Updater:
    """Verifies maps, fetches and activates what they mean for this gateway.

    Args:
        forget: removes a blob from the downloads' store.
        on_activated: called on the updater's thread when another model serves; idempotent.

    Raises:
        StorageError: the tables cannot be made.
    """

    def __init__(
        self,
        gateway: str,
        fleet: str,
        parts: Parts,
        *,
        forget: Callable[[str], object],
        on_activated: Callable[[Slot], None],
        started: Startup,
        rng: random.Random | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        self._gateway = gateway
        self._fleet = fleet
        self._floors = parts.floors
        self._trusted = parts.trusted
        self._fallbacks = deque(started.fallbacks)
        self._rng = rng or random.Random()
        self._inbox = MapInbox()
        self._journal = OtaJournal(parts.database, parts.outbox)
        self._keys = self._journal.command_keys()
        fetcher = BlobFetcher(parts.downloads, self._inbox, self._journal.report, self._rng)
        self._staging = Staging(parts.store, fetcher, forget)
        self._activation = Activation(parts.store, parts.server, self._journal, on_activated)
        self._todo: VerifiedMap | None = None
        self._loss_told = False
        self._recheck: tuple[float, bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="updater", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if it ended by itself, ``failure`` says why."""
        return self._thread.is_alive()

    @property
    def state(self) -> str:
        """The word for the state message."""
        return self._journal.progress.state.value

    @property
    def last_refusal(self) -> str:
        """The newest refusal, for the status; empty: there was none."""
        refusal = self._journal.last_refusal()
        return "" if refusal is None else f"{refusal[1]}, map {refusal[0]}"

    @property
    def trusted_versions(self) -> TrustedVersions:
        """The floors, for the state message."""
        served = self._activation.served
        return self._floors.trusted_versions(served.bundle, served.cohort)

    @property
    def clock_trust(self) -> ClockTrust:
        """Whether the clock may be right, for the state message."""
        return self._trusted.clock_trust

    def start(self) -> None:
        """Begin: what a crash or a fallback left is put straight first."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End after the step in hand; returns whether it ended in time."""
        self._inbox.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self.alive

    def on_release_map(self, payload: bytes) -> None:
        """A map arrived; returns at once. An empty payload (withdrawn) means nothing."""
        if payload:
            self._inbox.put(payload)

    def verify_command(self, key_id: str, signature: bytes, body: bytes) -> bool:
        """Whether a command key of the last verified ``fleet.json`` made the signature."""
        return verify_signature(self._keys, key_id, signature, body)

    def run_once(self) -> bool:
        """Take the next map or go on with the work; returns whether there was any. For the thread and for tests.

        Raises:
            StorageError: the disk refused; call :meth:`recover` before going on.
        """
        payload = self._inbox.take() or self._due_recheck()
        if payload is not None:
            self._consider_or_keep(payload)
            return True
        if self._todo is not None:
            self._work(self._todo)
            return True
        return False

    def recover(self) -> None:
        """Put straight what a crash, a fallback or a storage fault left, and take up unfinished work.

        Raises:
            StorageError: the disk refuses still.
        """
        self._activation.recover()
        while self._fallbacks:
            given_up = self._fallbacks[0]
            self._journal.give_up(given_up.slot, given_up.reason, given_up.detail, for_good=given_up.is_final)
            self._fallbacks.popleft()
        self._notice_lost_pointer()
        self._trusted.recover_floors()
        stored = self._trusted.stored()
        if stored is None and self._journal.has_settled and not self._loss_told:
            self._tell_lost_map()
        if self._todo is None and stored is not None and self._is_unfinished(sha256_hex(stored)):
            self._inbox.put(stored)

    def _notice_lost_pointer(self) -> None:
        """What was committed does not serve, and nothing says why: the pointer is lost; work on the release again."""
        progress, served = self._journal.progress, self._activation.served
        lost = progress.slot
        if progress.state is not OtaState.COMMITTED or lost is None or lost == served:
            return
        if not self._journal.has_settled or self._journal.barred(lost) is not None:
            return
        detail = f"the pointer file is lost or damaged: version {served.version} of {served.cohort} serves"
        _log.error("pointer-lost", committed=lost.weights, served=served.weights)
        self._journal.give_up(lost, "pointer_lost", detail, for_good=False)

    def _tell_lost_map(self) -> None:
        self._loss_told = True
        problem, hint = "the map trusted last is lost or damaged", "floors hold; the next map restores it"
        _log.error("trusted-map-lost", problem=problem, hint=hint)
        self._journal.report(ErrorEvent(place="trust", problem=problem, hint=hint))

    def _run(self) -> None:
        try:
            attempt, straight = 0, False
            while not self._inbox.closed:
                try:
                    if not straight:
                        self.recover()
                        straight = True
                    busy = self.run_once()
                    attempt = 0
                except StorageError as error:
                    _log.warning("ota-storage", problem=error.problem, hint=error.hint, attempt=attempt)
                    straight, busy = False, False
                    self._pause(attempt)
                    attempt += 1
                if not busy and straight:
                    self._inbox.wait(self._idle_s())
        except BaseException as error:
            self.failure = error
            _log.exception("updater-died")

    def _pause(self, attempt: int) -> None:
        deadline_s = time.monotonic() + backoff_s(attempt, self._rng) + 0.1
        while not self._inbox.closed and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.1))

    def _consider_or_keep(self, payload: bytes) -> None:
        try:
            self._consider(payload)
        except StorageError:
            self._inbox.put(payload)
            raise

    def _consider(self, payload: bytes) -> None:
        digest = sha256_hex(payload)
        if self._is_done(digest):
            self._restore(payload)
            self._journal.reassert(digest, slot=self._activation.served)
            return
        if self._todo is not None and self._todo.digest == digest:
            return
        self._journal.step(self._arrival(), map_digest=digest)
        try:
            verified = self._trusted.examine(payload)
            self._check_against_work(verified)
        except RejectedUpdate as error:
            self._refuse(digest, error)
            if error.reason == "expired_or_clock_wrong":
                self._recheck = (time.monotonic() + CLOCK_RECHECK_S, payload)
            return
        self._todo, self._recheck = verified, None

    def _restore(self, payload: bytes) -> None:
        """A map that is trusted already comes again: keep it if its file has been lost."""
        if self._trusted.stored() is not None:
            return
        try:
            self._trusted.accept(self._trusted.examine(payload))
        except RejectedUpdate as error:
            _log.warning("trusted-map-not-restored", reason=error.reason, problem=error.problem)

    def _check_against_work(self, verified: VerifiedMap) -> None:
        """A map in work is not in the floors yet, and yet nothing older may take its place."""
        if self._todo is None:
            return
        version, offered = self._todo.roles["timestamp"].version, verified.roles["timestamp"].version
        if offered < version:
            raise RejectedUpdate("rollback", f"timestamp version {offered} is below {version}, which is in work")
        if offered == version:
            raise RejectedUpdate("fork", f"timestamp version {version} is in work with another map digest")

    def _work(self, verified: VerifiedMap) -> None:
        target: Target | None = None
        try:
            if self._journal.progress.state is not OtaState.VERIFYING:
                self._journal.step(OtaEvent.MAP_ARRIVED, map_digest=verified.digest)
            target = self._choose(verified, self._trust(verified))
            self._carry_out(verified, target)
        except Superseded:
            if self._journal.progress.state is OtaState.FETCHING:
                self._journal.step(OtaEvent.SUPERSEDED, map_digest=verified.digest)
            return
        except RejectedUpdate as error:
            self._refuse_target(verified, target, error)
        self._todo = None
        self._staging.forget_taken()

    def _trust(self, verified: VerifiedMap) -> FleetTarget:
        """The fleet's name is checked before the floors rise: they never fall again."""
        fleet = self._staging.target(verified, FLEET_TARGET, FleetTarget)
        if fleet.fleet != self._fleet:
            raise RejectedUpdate("wrong_fleet", f"the release is for fleet {fleet.fleet}, this is {self._fleet}")
        self._trusted.accept(verified)
        self._journal.keep_command_keys(fleet.command_keys)
        self._keys = fleet.command_keys
        return fleet

    def _choose(self, verified: VerifiedMap, fleet: FleetTarget) -> Target:
        try:
            membership = decode_membership(self._staging.target_bytes(verified, MEMBERSHIP_TARGET))
        except WireError as error:
            raise RejectedUpdate("malformed", str(error)) from None
        place = place_of(self._gateway, membership, fleet)
        cohort = self._staging.target(verified, cohort_target(place.bundle, place.cohort), CohortTarget)
        if (cohort.bundle, cohort.cohort) != (place.bundle, place.cohort):
            raise RejectedUpdate("wrong_cohort", f"the target speaks of {cohort.cohort}, not {place.cohort}")
        return target_of(self._gateway, cohort)

    def _carry_out(self, verified: VerifiedMap, target: Target) -> None:
        slot = target.slot
        self._floors.check_release(slot.bundle, slot.cohort, slot.version, slot.weights)
        self._floors.raise_release(slot.bundle, slot.cohort, slot.version, slot.weights)
        if slot == self._activation.served:
            self._activation.commit(OtaEvent.ALREADY_ACTIVE)
            return
        barred = self._journal.barred(slot)
        if barred is not None:
            raise RejectedUpdate("barred", f"version {slot.version} of {slot.cohort} was given up: {barred}")
        self._journal.step(OtaEvent.TARGET_CHOSEN, slot=slot)
        self._staging.stage(verified, target)
        self._journal.step(OtaEvent.FETCHED)
        prepared = self._activation.prepare(slot, target.adaptation)
        self._journal.step(OtaEvent.PREPARED)
        self._activation.activate(prepared)

    def _refuse(self, digest: str, error: RejectedUpdate) -> None:
        _log.warning("map-refused", map_digest=digest, reason=error.reason, problem=error.problem)
        self._journal.refuse(digest, error, final=False)

    def _refuse_target(self, verified: VerifiedMap, target: Target | None, error: RejectedUpdate) -> None:
        slot = target.slot if target else None
        _log.warning("target-refused", map_digest=verified.digest, reason=error.reason, problem=error.problem)
        self._journal.refuse(verified.digest, error, slot=slot, final=True)
        if slot is not None and error.reason in _UNFIT:
            self._journal.bar(slot, error.reason)
        self._activation.drop_candidate()

    def _arrival(self) -> OtaEvent:
        return OtaEvent.SUPERSEDED if self._journal.progress.state in _IN_WORK else OtaEvent.MAP_ARRIVED

    def _is_done(self, digest: str) -> bool:
        return self._journal.is_settled(digest) and self._floors.map_digest == digest

    def _is_unfinished(self, digest: str) -> bool:
        return self._floors.map_digest == digest and not self._journal.is_settled(digest)

    def _due_recheck(self) -> bytes | None:
        if self._recheck is None or time.monotonic() < self._recheck[0]:
            return None
        payload, self._recheck = self._recheck[1], None
        return payload

    def _idle_s(self) -> float:
        if self._recheck is None:
            return IDLE_STEP_S
        return min(IDLE_STEP_S, max(0.1, self._recheck[0] - time.monotonic()))
