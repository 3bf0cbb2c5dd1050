"""The one place that builds and supervises the bridge's parts.

broker ── station (session, ingest, commands, uploads) ── store ── controller ── Flower
   └───── publisher (releases, blobs) ── signer process
"""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from edge_agent.errors import ConfigError
from edge_agent.link.durable import make_directory, read_file
from edge_agent.link.service import ServiceNotifier, Watchdog
from edge_agent.wire.messages import State
from edge_agent.wire.topics import FleetTopics
from server_bridge.config import BridgeSettings
from server_bridge.errors import BridgeFailure
from server_bridge.fleet.loops import Loop
from server_bridge.fleet.station import FleetStation, client_id
from server_bridge.flower.strategies import StrategySettings
from server_bridge.releases.provision import (
    BLOBS_FOLDER,
    BUNDLES_FOLDER,
    KEYS_FOLDER,
    RELEASES_FOLDER,
    ROOT_CAP_BYTES,
    ROOT_FILE,
)
from server_bridge.releases.publisher import Publisher, PublisherParts
from server_bridge.releases.record import FileReleaseBook
from server_bridge.releases.signer_client import SignerClient
from server_bridge.rounds.adaptation import AdaptationRunner, RoundSettings
from server_bridge.rounds.controller import Controller, FlagWatch
from server_bridge.rounds.trigger import TriggerParams
from server_bridge.store.blob_sweep import BlobSweep
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.store import Store, store_url

LEDGER_FILE = "retained.json"
LOCK_FILE = "bridge.lock"
LOOK_S = 0.2
CONTROLLER_PATIENCE = 10.0  # aggregating a large fleet is one turn
ALARM_PAUSE_S = 600.0
STOP_CONTROLLER_S = 1.5
STOP_PUBLISHER_S = 1.0
STOP_STATION_S = 1.5
STOP_SIGNER_S = 0.5

_log = structlog.get_logger(__name__)


class BridgeRuntime:
    """A whole bridge.

    Args:
        settings: from ``bridge.toml``.

    Raises:
        ConfigError: the folder holds no fleet, or another bridge runs in it.
        StorageError: disk or database.
    """

    def __init__(self, settings: BridgeSettings) -> None:
        data_dir = settings.bridge.data_dir
        self._lock = lock_folder(data_dir)
        self._stopping = threading.Event()
        self._alarms: dict[tuple[str, str], float] = {}
        self._alarms_lock = threading.Lock()
        self.store = Store(settings.bridge.store or store_url(data_dir), data_dir / BLOBS_FOLDER)
        self.store.blobs.sweep()
        bundles = BundleFolder(data_dir / BUNDLES_FOLDER)
        self._signer = SignerClient(data_dir / KEYS_FOLDER, data_dir / BUNDLES_FOLDER)
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
            StrategySettings(**settings.strategy.model_dump()),
            RoundSettings(**settings.round.model_dump()),
            watch.open_flags,
            self._stopped,
        )
        trigger = TriggerParams(**settings.trigger.model_dump())
        controller = Controller(self.store, watch, runner, trigger, self._stopping)
        sweep = BlobSweep(self.store, lambda: self.publisher.retained | self._book.blobs())

        def step() -> None:
            controller.step()
            sweep.step()

        self._controller = Loop("controller", step)
        self._service = ServiceNotifier.from_environment(os.environ)
        moving = {loop.name: loop.pulse for loop in (*self.station.loops, self._controller)}
        self._watchdog = Watchdog(self._service, moving, {self._controller.name: CONTROLLER_PATIENCE})

    def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            BridgeFailure: a part died by itself.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        self.start()
        try:
            while not self._stopping.wait(LOOK_S):
                self.check()
                self._watchdog.look()
        finally:
            self.stop()

    def start(self) -> None:
        """Start every part; the broker may be away."""
        self.publisher.start()
        self.station.start()
        self._controller.start()
        self.store.decisions.record("bridge", "started", f"boot id {self.station.boot_id}", time.time())
        _log.info("bridge-started", boot_id=self.station.boot_id)
        self._service.ready("ingesting, deciding and releasing")

    def check(self) -> None:
        """Every part lives.

        Raises:
            BridgeFailure: one does not.
        """
        parts = {"publisher": (self.publisher.alive, self.publisher.failure)}
        parts["session"] = (self.station.session.alive, self.station.session.failure)
        parts |= {loop.name: (loop.alive, loop.failure) for loop in (*self.station.loops, self._controller)}
        for name, (alive, failure) in parts.items():
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
        self._book = book = FileReleaseBook(data_dir / RELEASES_FOLDER)
        latest = book.latest()
        if latest is None:
            raise ConfigError(f"{data_dir} holds no release", "run `server-bridge init --bundle DIR` first")
        if latest[0].fleet.fleet != settings.bridge.fleet:
            raise ConfigError(
                f"[bridge] fleet = {settings.bridge.fleet!r}, but the releases in {data_dir} are of "
                f"{latest[0].fleet.fleet!r}",
                "correct the name, or give the right data_dir",
            )
        parts = PublisherParts(
            root=read_file(data_dir / ROOT_FILE, cap_bytes=ROOT_CAP_BYTES),
            book=book,
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

    def _observe(self, states: Sequence[State]) -> None:
        for state in states:
            self.publisher.observe(state)


def lock_folder(directory: Path) -> int:
    """Make sure that no other bridge runs on this folder; the lock's descriptor.

    Raises:
        ConfigError: another one does.
    """
    make_directory(directory)
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"another bridge runs in {directory}", "stop it first; a fleet has one bridge") from None
    return descriptor
