"""The one place that builds and supervises the bridge's parts.

broker ── station (session, ingest, commands, uploads) ── store ── controller ── Flower
   └───── publisher (releases, blobs) ── signer process
"""

import difflib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from edge_agent.errors import ConfigError, StorageError
from edge_agent.link.durable import read_file
from edge_agent.link.interrupt import stop_on_signals
from edge_agent.link.service import ServiceNotifier, Watchdog
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.messages import State
from edge_agent.wire.roles import graph_named, update_specs
from edge_agent.wire.scalars import unfit_scalar
from edge_agent.wire.topics import FleetTopics
from server_bridge.config import BridgeSettings
from server_bridge.errors import BridgeFailure
from server_bridge.fleet.loops import Loop
from server_bridge.fleet.station import FleetStation, client_id
from server_bridge.flower.strategies import StrategySettings, make_strategy
from server_bridge.folder_lock import lock_folder
from server_bridge.releases.keys import OnlineKeys
from server_bridge.releases.provision import (
    BUNDLES_FOLDER,
    KEYS_FOLDER,
    RELEASES_FOLDER,
    ROOT_CAP_BYTES,
    ROOT_FILE,
)
from server_bridge.releases.publisher import Publisher, PublisherParts
from server_bridge.releases.record import FileReleaseBook, ReleaseRecord, cohort_number, highest_cohort
from server_bridge.releases.retained_map import Verdict
from server_bridge.releases.signer_client import SignerClient
from server_bridge.rounds.adaptation import AdaptationRunner
from server_bridge.rounds.controller import Controller, FlagWatch
from server_bridge.rounds.merging import CohortMerges
from server_bridge.rounds.round_settings import RoundSettings
from server_bridge.rounds.trigger import TriggerParams
from server_bridge.store.blob_sweep import BlobSweep
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.keeper import LEDGER_FILE, StoreKeeper

LOOK_S = 0.2
CONTROLLER_PATIENCE = 10.0  # aggregating a large fleet is one turn
ALARM_PAUSE_S = 600.0
FOLDER_IS_OLD = (Verdict.AHEAD.value, "gateway-ahead")
STOP_CONTROLLER_S = 1.5
STOP_PUBLISHER_S = 1.0
STOP_STATION_S = 1.5
STOP_SIGNER_S = 0.5
STOP_COPIES_S = 0.5

_log = structlog.get_logger(__name__)


class BridgeRuntime:
    """A whole bridge.

    Args:
        settings: from ``bridge.toml``.

    Raises:
        ConfigError: the folder holds no fleet, another bridge runs in it, or no strategy is as the settings say.
        StorageError: disk or database.
    """

    def __init__(self, settings: BridgeSettings) -> None:
        data_dir = settings.bridge.data_dir
        self._lock = lock_folder(data_dir)
        self._stopping = threading.Event()
        self._alarms: dict[tuple[str, str], float] = {}
        self._alarms_lock = threading.Lock()
        self._book = FileReleaseBook(data_dir / RELEASES_FOLDER)
        latest = _latest(self._book, settings)
        bundles = BundleFolder(data_dir / BUNDLES_FOLDER)
        strategy = StrategySettings(**settings.strategy.model_dump())
        make_strategy(strategy, flagged=lambda _: set())  # what does not go together is refused before drift is flagged
        _refuse_unknown_graph(settings, bundles.manifest(latest.fleet.default_bundle))
        self._keeper = StoreKeeper(settings.bridge.store, data_dir, {"cohort": highest_cohort(latest)})
        self.store = self._keeper.store
        self.store.blobs.sweep()
        self._signer = SignerClient(data_dir / KEYS_FOLDER, data_dir / BUNDLES_FOLDER)
        _warn_of_absent_keys(data_dir / KEYS_FOLDER)
        self.publisher = self._make_publisher(settings, data_dir)
        topics = FleetTopics(settings.bridge.fleet)
        self.station = FleetStation(
            settings.broker.settings(),
            topics,
            self.store,
            self._signer.sign_command,
            bundles.update_cap_bytes,
            self.publisher,
            on_states=self._observe,
        )
        watch = FlagWatch(self.store, self.publisher, bundles)
        runner = AdaptationRunner(
            self.store,
            self.station.fleet,
            bundles,
            self.publisher,
            strategy,
            RoundSettings(**settings.round.model_dump()),
            watch.open_flags,
            self._stopped,
        )
        trigger = TriggerParams(**settings.trigger.model_dump())
        merges = CohortMerges(self.store, self.publisher)
        controller = Controller(self.store, watch, runner, merges, trigger, self._stopping)
        sweep = BlobSweep(self.store, lambda: self.publisher.retained | self._book.blobs())

        def step() -> None:
            controller.step()
            sweep.step()

        self._controller = Loop("controller", step)
        copy = self._keeper.copier(
            settings.bridge.store_copy_interval_s, occasion=self._worth_a_copy, pause=self._stopping.wait
        )
        self._copies = [] if copy is None else [Loop("store-copies", copy)]
        self._service = ServiceNotifier.from_environment(os.environ)
        moving = {loop.name: loop.pulse for loop in (*self.station.loops, self._controller)}
        self._watchdog = Watchdog(self._service, moving, {self._controller.name: CONTROLLER_PATIENCE})

    def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            BridgeFailure: a part died by itself.
        """
        stop_on_signals(self._stopping)
        self.start()
        try:
            while not self._stopping.wait(LOOK_S):
                self.check()
                self._watchdog.look()
        finally:
            self.stop()

    def start(self) -> None:
        """Start every part; the broker may be away.

        Raises:
            StorageError: the disk takes nothing; nothing is started.
        """
        self.store.decisions.record("bridge", "started", f"boot id {self.station.boot_id}", time.time())
        self.publisher.start()
        self.station.start()
        for loop in (self._controller, *self._copies):
            loop.start()
        _log.info("bridge-started", boot_id=self.station.boot_id)
        self._service.ready("ingesting, deciding and releasing")

    def check(self) -> None:
        """The store is there and sound as far as is known, and every part lives.

        Raises:
            StorageError: the store is lost, or the disk refused what a part cannot go on without.
            BridgeFailure: a part ended by itself.
        """
        self._keeper.check()
        parts = {"publisher": (self.publisher.alive, self.publisher.failure)}
        parts["session"] = (self.station.session.alive, self.station.session.failure)
        loops = (*self.station.loops, self._controller, *self._copies)
        parts |= {loop.name: (loop.alive, loop.failure) for loop in loops}
        for name, (alive, failure) in parts.items():
            if not alive and isinstance(failure, StorageError):
                raise failure
            if not alive:
                raise BridgeFailure(f"{name} ended: {failure!r}", "the log above says where; start the bridge again")

    def stop(self) -> None:
        """End every part, in at most five seconds; what was cut off is resumed at the next start."""
        self._stopping.set()
        self._service.stopping()
        ended = {
            "controller": self._controller.stop(STOP_CONTROLLER_S),
            "publisher": self.publisher.stop(STOP_PUBLISHER_S),
            "station": self.station.stop(STOP_STATION_S),
            **{loop.name: loop.stop(STOP_COPIES_S) for loop in self._copies},
        }
        self._signer.stop(STOP_SIGNER_S)
        late = sorted(name for name, in_time in ended.items() if not in_time)
        _log.info("bridge-stopped", late=late)
        if not late:
            self.store.close()
        os.close(self._lock)

    def _stopped(self, wait_s: float) -> bool:
        self._controller.pulse.beat()  # an adaptation asks this while it waits: it moves
        return self._stopping.wait(wait_s) if wait_s > 0 else self._stopping.is_set()

    def _make_publisher(self, settings: BridgeSettings, data_dir: Path) -> Publisher:
        parts = PublisherParts(
            root=read_file(data_dir / ROOT_FILE, cap_bytes=ROOT_CAP_BYTES),
            book=self._book,
            signer=self._signer,
            blobs=self.store.blobs,
            ledger=data_dir / LEDGER_FILE,
        )
        return Publisher(
            settings.broker.settings(),
            f"{client_id(settings.bridge.fleet)}.release",
            parts,
            on_alarm=self._alarm,
            budget_bytes=settings.release.retained_budget_bytes,
        )

    def _alarm(self, kind: str, facts: Mapping[str, str | int]) -> None:
        """Recorded once in ten minutes by kind and subject: a gateway repeats its state, an intruder its map."""
        subject = (kind, str(facts.get("gateway") or facts.get("map_digest")))
        now_s = time.monotonic()
        with self._alarms_lock:
            if now_s - self._alarms.get(subject, float("-inf")) < ALARM_PAUSE_S:
                return
            self._alarms = {key: at_s for key, at_s in self._alarms.items() if now_s - at_s < ALARM_PAUSE_S}
            self._alarms[subject] = now_s
        detail = ", ".join(f"{name} {value}" for name, value in facts.items())
        self.store.decisions.record("alarm", kind, detail, time.time(), facts=dict(facts))
        if kind in FOLDER_IS_OLD:
            self._keeper.folder_is_old(detail)

    def _observe(self, states: Sequence[State]) -> None:
        for state in states:
            self.publisher.observe(state)
            self._keeper.observe("cohort", cohort_number(state.cohort))

    def _worth_a_copy(self) -> object:
        """What gateways or an operator would have to do again, were it lost, changes this."""
        return self.publisher.latest.number, self.store.gateways.registered()


def _latest(book: FileReleaseBook, settings: BridgeSettings) -> ReleaseRecord:
    data_dir, latest = settings.bridge.data_dir, book.latest()
    if latest is None:
        raise ConfigError(f"{data_dir} holds no release", "run `server-bridge init --bundle DIR` first")
    if latest[0].fleet.fleet != settings.bridge.fleet:
        raise ConfigError(
            f"[bridge] fleet = {settings.bridge.fleet!r}, but the releases in {data_dir} are of "
            f"{latest[0].fleet.fleet!r}",
            "correct the name, or give the right data_dir",
        )
    return latest[0]


def _warn_of_absent_keys(keys: Path) -> None:
    """The bridge hears the fleet without them; told now, and not when the first repair is to be signed."""
    absent = OnlineKeys.absent(keys)
    if absent:
        hint = "bring them back: nothing can be signed, so nothing is adapted or released"
        _log.error("signing-keys-absent", files=[str(path) for path in absent], hint=hint)


def _refuse_unknown_graph(settings: BridgeSettings, manifest: Manifest) -> None:
    """Else every gateway would refuse every round."""
    _refuse_graph("training_graph", settings.round.training_graph, manifest, settings.round.scalars)
    for gateway, graph in settings.round.gateway_graphs.items():
        _refuse_graph(f"gateway_graphs.{gateway}", graph, manifest, settings.round.scalars)


def _refuse_graph(key: str, wanted: str, manifest: Manifest, scalars: Mapping[str, float]) -> None:
    names = [graph.name for graph in manifest.training]
    if wanted in names:
        _refuse_personal_graph(key, wanted, manifest)
        unfit = unfit_scalar(graph_named(manifest, wanted), scalars)
        if unfit:
            raise ConfigError(f"[round] scalars: {unfit}")
        return
    problem = f"[round] {key} = {wanted!r}, which the bundle {manifest.name!r} does not have"
    if not names:
        raise ConfigError(f"{problem}: it cannot be trained", "build it with `server-bridge bundle build --trainable`")
    near = difflib.get_close_matches(wanted, names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(problem, f"it has {', '.join(repr(name) for name in names)}{meant}")


def _refuse_personal_graph(key: str, name: str, manifest: Manifest) -> None:
    """What is personal never leaves a gateway: there would be nothing to average."""
    if update_specs(manifest, graph_named(manifest, name)):
        return
    problem = f"[round] {key} = {name!r}, which trains nothing but personal tensors"
    shared = [graph.name for graph in manifest.training if update_specs(manifest, graph)]
    raise ConfigError(problem, f"one of {', '.join(repr(graph) for graph in shared) or 'another bundle'}")
