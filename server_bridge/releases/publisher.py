"""The one publisher of a fleet's releases."""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import ConfigError, EdgeError, StorageError, TransientError
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.messages.state import State
from edge_agent.wire.release import Membership
from edge_agent.wire.topics import FleetTopics
from server_bridge.releases.broker_copies import BrokerCopies
from server_bridge.releases.chunks import BUDGET_BYTES, BlobPublisher
from server_bridge.releases.claims import GatewayClaims
from server_bridge.releases.drafting import NewWeights, ReleaseRequest, draft
from server_bridge.releases.ledger import RetainedLedger
from server_bridge.releases.readback import ReadBack
from server_bridge.releases.record import ReleaseBook, ReleaseRecord
from server_bridge.releases.repository import ONLINE_LIFETIME_S, RoleVersions
from server_bridge.releases.retained_line import RetainedLine
from server_bridge.releases.retained_map import Judged, Verdict, judge
from server_bridge.releases.signed_release import Release, sign_release
from server_bridge.releases.signer_client import SignerClient
from server_bridge.store.blobs import BlobFolder

MAP_TIMEOUT_S = 15.0
RETAINED_WAIT_S = 1.0
RETRY_S = 2.0
STEP_S = 1.0
HOUSEKEEPING_S = 60.0
REPUBLISH_PAUSE_S = 5.0
GO_ABOVE_PAUSE_S = 5.0
TASKS_QUEUED = 256
URGENT_BLOBS = 8

_log = structlog.get_logger(__name__)

Alarm = Callable[[str, Mapping[str, str | int]], None]


@dataclass(frozen=True, slots=True)
class PublisherParts:
    """What a publisher works with.

    Attributes:
        root: the bytes of the trusted ``root.json``.
        ledger: path of the account of retained blobs.
        blobs: the bridge's blob folder.
    """

    root: bytes
    book: ReleaseBook
    signer: SignerClient
    blobs: BlobFolder
    ledger: Path


class Publisher:
    """Makes, publishes and defends releases; implements what rounds and the fleet need of releases and blobs.

    Args:
        client_id: fixed; ``<client_id>.readback`` is the second client's.
        on_alarm: told of foreign maps and of versions ahead of ours (kind, facts); any thread; must not block.

    Raises:
        ConfigError: the book holds no release.
        StorageError: book or ledger cannot be read.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        client_id: str,
        parts: PublisherParts,
        *,
        on_alarm: Alarm,
        budget_bytes: int = BUDGET_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        latest = parts.book.latest()
        if latest is None:
            raise ConfigError("there is no release", "run `server-bridge init --bundle DIR` first")
        self._record, self._map = latest
        self.failure: BaseException | None = None
        self.foreign_maps = 0
        self._parts = parts
        self._on_alarm = on_alarm
        self._clock = clock
        self._topics = FleetTopics(self._record.fleet.fleet)
        self._line = RetainedLine(
            settings, client_id, self._topics, on_connected=self._connected, on_map=self._map_seen
        )
        readback = ReadBack(settings, f"{client_id}.readback", self._topics)
        copies = BrokerCopies(settings, f"{client_id}.readback", self._topics)
        ledger = RetainedLedger(parts.ledger)
        self._blobs = BlobPublisher(
            self._line, readback, copies, self._topics, parts.blobs, ledger, budget_bytes=budget_bytes, clock=clock
        )
        self._blobs.keep({one.digest for one in self._record.blobs})
        self._signed = self._record.versions.value()
        self._lock = threading.RLock()
        self._own_seen = threading.Event()
        self._asserted = threading.Event()
        self._tasks: queue.Queue[Callable[[], None]] = queue.Queue(TASKS_QUEUED)
        self._republished: dict[str, float] = {}
        self._went_above_s = -GO_ABOVE_PAUSE_S
        self._claims = GatewayClaims()
        self._claims_lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether every thread runs; ``failure`` says why not."""
        if self._line.failure is not None and self.failure is None:
            self.failure = self._line.failure
        return self._thread.is_alive() and self._line.alive

    @property
    def latest(self) -> ReleaseRecord:
        """The release in force."""
        return self._record

    @property
    def asserted(self) -> bool:
        """Whether the broker holds our map and its blobs, as far as we know."""
        return self._asserted.is_set()

    def start(self) -> None:
        """Connect; what the broker lacks of the release in force is published."""
        self._line.start()
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End; returns whether it ended in time. The signer is its owner's to stop."""
        self._stopping.set()
        ended = self._line.stop(timeout_s)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return ended and not self._thread.is_alive()

    def wait_asserted(self, timeout_s: float) -> bool:
        """Wait until the release in force is on the broker; whether it is."""
        return self._asserted.wait(timeout_s)

    # What rounds need of releases (``server_bridge.rounds.release_book.Releases``).

    def current(self, bundle: str) -> dict[str, str]:
        """Digest of each cohort's current weights, the root's among them."""
        return {one.cohort: one.current.weights.digest for one in self._record.cohorts if one.bundle == bundle}

    def members(self, bundle: str) -> dict[str, str]:
        """Gateways that the membership lists with this bundle, to their cohorts."""
        return {name: member.cohort for name, member in self._record.members.items() if member.bundle == bundle}

    def release(
        self,
        bundle: str,
        members: Mapping[str, str],
        weights: Mapping[str, bytes],
        reason: str,
        *,
        adaptation: str | None = None,
    ) -> int:
        """Release a bundle's membership and its cohorts' new weights in one map; its number.

        Args:
            adaptation: whose rounds made the weights.

        Raises:
            RejectedUpdate: the signer's policy refuses.
            TransientError: the broker or the signer is away; nothing is released.
            StorageError: the disk refused; nothing is released.
        """
        others = {name: one for name, one in self._record.members.items() if one.bundle != bundle}
        own = {name: Membership(bundle=bundle, cohort=cohort) for name, cohort in members.items()}
        cohorts = {(bundle, cohort): NewWeights(data, adaptation=adaptation) for cohort, data in weights.items()}
        return self.make_release(ReleaseRequest(others | own, reason, cohorts)).number

    def make_release(self, request: ReleaseRequest) -> ReleaseRecord:
        """Make, keep and publish the next release.

        Raises:
            RejectedUpdate, TransientError, StorageError: as :meth:`release`.
        """
        with self._lock:
            content = draft(self._record, request)
            for data in content.weights.values():
                self._parts.blobs.put(data)
            self._signed = self._signed.next_online()  # first: what was signed once is never signed again
            former = Release(self._record, self._map)
            record, release_map = sign_release(
                former, content, self._signed, self._parts.signer, self._parts.blobs, self._clock()
            )
            self._blobs.publish_all([*content.weights.values(), *(data for _, data in content.targets.values())])
            self._parts.book.add(record, release_map)
            self._put_in_force(record, release_map)
        _log.info("released", number=record.number, reason=record.reason, map_digest=record.map_digest)
        try:
            self._publish_map()
        except TransientError as error:  # it is released: it will be asserted when the broker is back
            _log.warning("map-not-published-yet", number=record.number, problem=error.problem)
            self._later(self._assert)
        return record

    @property
    def retained(self) -> set[str]:
        """Digests of every blob that the broker should hold, of whatever age: their bytes are needed still."""
        return self._blobs.retained | {one.digest for one in self._record.blobs}

    # What the fleet needs of blobs (``server_bridge.fleet.mqtt_fleet.BlobSource``).

    def publish(self, data: bytes) -> BlobReference:
        """Publish a blob's chunks, retained; the same bytes again are free.

        Raises:
            TransientError: the broker is away or refuses.
            StorageError: the disk refused.
        """
        return self._blobs.publish(data)

    def republish(self, reference: BlobReference) -> None:
        """A gateway misses this blob: publish what the broker lacks of it, if it is ours. Does not block."""
        now_s = time.monotonic()
        own = self._blobs.find(reference.digest)
        if own != reference or now_s - self._republished.get(reference.digest, -1e9) < REPUBLISH_PAUSE_S:
            return
        self._republished = {name: at_s for name, at_s in self._republished.items() if now_s - at_s < 60.0}
        self._republished[reference.digest] = now_s
        self._later(lambda: self._ensure_one(reference))

    def observe(self, state: State) -> None:
        """A gateway reports what it trusts and runs; versions that are not ours are an alarm. Does not block."""
        with self._claims_lock:
            found = self._claims.add(state, self._record, time.monotonic())
        if found is not None:
            self._on_alarm("gateway-ahead", {"gateway": state.gateway, "detail": found})

    def _put_in_force(self, record: ReleaseRecord, release_map: bytes) -> None:
        """The former release's blobs stay too: gateways may be fetching them still."""
        former = {one.digest for one in self._record.blobs}
        self._record, self._map = record, release_map
        self._asserted.clear()
        self._own_seen.clear()
        self._blobs.keep(former | {one.digest for one in record.blobs})

    def _publish_map(self) -> None:
        with self._lock:
            self._line.publish([(self._topics.release, self._map)], timeout_s=MAP_TIMEOUT_S)
            self._asserted.set()

    def _connected(self) -> None:
        self._asserted.clear()
        self._own_seen.clear()
        self._blobs_doubted()
        self._later(self._assert)

    def _blobs_doubted(self) -> None:
        self._later(self._blobs.doubt)

    def _map_seen(self, payload: bytes) -> None:
        if sha256_hex(payload) == self._record.map_digest:
            self._own_seen.set()
        else:
            self._later(lambda: self._judge(payload))

    def _assert(self) -> None:
        """Publish what the broker lacks: what the round under way waits for, the release in force, then the rest."""
        recent = self._blobs.recent()
        published = self._ensure_rounds(recent[:URGENT_BLOBS])
        own_map_there = self._own_seen.wait(RETAINED_WAIT_S)
        with self._lock:
            published += self._blobs.ensure(self._record.blobs)
            if published:
                _log.info("blobs-asserted", published=published, release=self._record.number)
            if own_map_there and self._own_seen.is_set():
                self._asserted.set()
            else:
                self._publish_map()
        self._ensure_rounds(recent[URGENT_BLOBS:])

    def _ensure_rounds(self, blobs: Sequence[BlobReference]) -> int:
        """One that cannot be read keeps neither the others nor the release from the broker."""
        try:
            return self._blobs.ensure(blobs)
        except StorageError as error:
            if len(blobs) > 1:
                return sum(self._ensure_rounds([one]) for one in blobs)
            _log.error("round-blob-not-asserted", problem=error.problem, hint=error.hint)
            return 0

    def _judge(self, payload: bytes) -> None:
        digest = sha256_hex(payload)
        with self._lock:
            judged = judge(payload, digest, self._record, self._parts.book, self._parts.root)
        if judged.verdict is Verdict.OWN:
            return
        if judged.verdict is not Verdict.OLDER_OWN and payload:
            self._tell_foreign(judged, digest)
        if judged.versions is not None:
            self._go_above(judged.versions, judged.detail)
        else:
            self._publish_map()

    def _tell_foreign(self, judged: Judged, digest: str) -> None:
        self.foreign_maps += 1
        _log.error("foreign-map", verdict=judged.verdict.value, map_digest=digest, detail=judged.detail)
        self._on_alarm(judged.verdict.value, {"map_digest": digest, "detail": judged.detail[:500]})

    def _go_above(self, seen: RoleVersions, why: str) -> None:
        """Release what is in force again above versions that somebody else has used."""
        now_s = time.monotonic()
        with self._lock:
            behind = seen.timestamp >= self._record.versions.timestamp
            if not behind or now_s - self._went_above_s < GO_ABOVE_PAUSE_S:
                self._publish_map()
                return
            self._went_above_s = now_s
            self._signed = self._signed.at_least(seen)
            self.make_release(ReleaseRequest(self._record.members, f"above: {why}"[:2000]))

    def _answer_claims(self) -> None:
        """Release what is in force again above what gateways hold."""
        with self._claims_lock:
            roles, seen = self._claims.take(time.monotonic())
        if roles is None and not seen:
            return
        with self._lock:
            if roles is not None:
                self._signed = self._signed.at_least(roles)
            self.make_release(ReleaseRequest(self._record.members, "above what gateways trust", seen=seen))

    def _ensure_one(self, reference: BlobReference) -> None:
        self._blobs.doubt([reference.digest])
        self._blobs.ensure([reference])

    def _later(self, task: Callable[[], None]) -> None:
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            _log.warning("publisher-busy", tasks=TASKS_QUEUED)

    def _run(self) -> None:
        housekeeping_s = time.monotonic() + HOUSEKEEPING_S
        try:
            while not self._stopping.is_set():
                self._step()
                with self._claims_lock:
                    claims_due = self._claims.is_due(time.monotonic())
                if claims_due:
                    self._later(self._answer_claims)
                if time.monotonic() > housekeeping_s:
                    housekeeping_s = time.monotonic() + HOUSEKEEPING_S
                    self._later(self._housekeeping)
        except BaseException as error:
            self.failure = error
            _log.exception("publisher-died")

    def _step(self) -> None:
        try:
            task = self._tasks.get(timeout=STEP_S)
        except queue.Empty:
            if self.asserted or not self._line.connected:
                return
            task = self._assert
        try:
            task()
        except EdgeError as error:
            _log.warning("publisher-step-failed", problem=error.problem, hint=error.hint)
            self._stopping.wait(RETRY_S)

    def _housekeeping(self) -> None:
        if self._line.connected:
            self._blobs.retire_unused()
        if self._clock() - self._record.created_s > ONLINE_LIFETIME_S / 3:
            self.make_release(ReleaseRequest(self._record.members, "refresh before expiry"))
