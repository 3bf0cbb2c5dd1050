"""The agent: builds its parts, starts and stops them in order, and watches that they live."""

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

import edge_agent
from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError, TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import Downloader
from edge_agent.link.durable import make_directory
from edge_agent.link.event_queue import EventQueue
from edge_agent.link.events import Disconnected, Published, Subscription
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.link.outbox_pump import OutboxPump
from edge_agent.link.presence import PresenceRepetition, PresenceVoice
from edge_agent.link.service import ServiceNotifier, Watchdog
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import TimeJudge
from edge_agent.link.upload import Uploader
from edge_agent.model.bundle import load_bundle
from edge_agent.ota.floors import Floors
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import confirm_start, startup
from edge_agent.ota.trust import TrustedReleases
from edge_agent.ota.updater import Parts, Updater
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.inbox import INBOX_EVENTS, Inbox, Receivers
from edge_agent.runtime.instance import STATUS_FILE, InstanceLock
from edge_agent.runtime.local_work import LocalWork, OperatorLimits, Serving
from edge_agent.runtime.orders import Orders
from edge_agent.runtime.part import Part
from edge_agent.runtime.parts import first_pass_of_this_start, make_sink, make_source, monitor_rule
from edge_agent.runtime.pipeline import Pipeline
from edge_agent.runtime.provisioned import provisioned_floors, provisioned_root
from edge_agent.runtime.recorder import Recorder
from edge_agent.runtime.report import Reading, Reporter, peak_rss_bytes
from edge_agent.runtime.soundness import SoundnessCheck
from edge_agent.runtime.storage import AgentStorage
from edge_agent.runtime.watch import DriftWatch
from edge_agent.samples.holdout import HoldoutCounts
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer
from edge_agent.training.job import WorkerLimits
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.messages import Ack, BridgePresence, Configure, ErrorEvent, State
from edge_agent.wire.topics import FleetTopics

SESSION_EXPIRY_S = 14 * 86_400
SUPERVISION_S = 0.5
STOP_S = 1.5
STOP_ALL_S = 4.0
_log = structlog.get_logger(__name__)


class Agent:
    """One gateway's agent.

    Raises:
        WronglyProvisioned: a file that it was handed is absent or damaged.
        ConfigError: a setting or file is wrong, or another agent runs on the same data folder.
        DataError: the provisioned bundle cannot be used.
        StorageError: the data folder cannot be used.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._gateway = settings.gateway.id
        self._topics = FleetTopics(settings.gateway.fleet)
        self._boot_id = secrets.token_hex(8)
        self._clock_reported = False
        self._stopping = threading.Event()
        data = settings.gateway.data_dir
        make_directory(data)
        self._lock = InstanceLock(data)
        self._storage = AgentStorage(data)
        self._database, self._samples_db = self._storage.agent, self._storage.samples
        try:
            self._build(data)
        except BaseException:
            self._storage.close()  # the next start makes anew what was found damaged meanwhile
            raise

    def _build(self, data: Path) -> None:
        settings = self._settings
        self._outbox = Outbox(
            self._database,
            self._gateway,
            max_bytes=settings.outbox.max_bytes,
            max_age_s=settings.outbox.max_age_s,
        )
        self._floors = Floors(self._database)
        self._judge = TimeJudge(lambda: self._floors.last_known_time_s, self._wrong_clock)
        self._build_serving()
        self._build_recording()
        self._build_link()
        self._build_updates()
        self._build_orders()
        self._reporter = Reporter(
            self._session,
            self._topics.state(self._gateway),
            data / STATUS_FILE,
            read=self._read,
            interval_s=settings.report.state_interval_s,
        )
        self._inbox = Inbox(settings.gateway.fleet, self._events, self._receivers())
        self._service = ServiceNotifier.from_environment(os.environ)
        moving = {"pipeline": self._pipeline.pulse, "recorder": self._recorder.pulse, "inbox": self._inbox.pulse}
        self._watchdog = Watchdog(self._service, moving)
        self._soundness = SoundnessCheck((self._database, self._samples_db))
        for name, damage in self._storage.damage.items():
            self._report_error(name, damage, "the damaged file was set aside beside the new one")

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; returns whether a part died instead."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        parts = self._parts()
        for part in parts.values():
            part.start()
        _log.info("agent_started", gateway=self._gateway, boot=self._boot_id, version=edge_agent.__version__)
        self._service.ready(f"serving as gateway {self._gateway}")
        died = self._supervise(parts)
        self._service.stopping()
        self._say_goodbye()
        deadline_s = time.monotonic() + STOP_ALL_S
        for part in reversed(parts.values()):
            part.stop(max(0.1, min(STOP_S, deadline_s - time.monotonic())))
        self._supervisor.stop()
        self._storage.close()
        self._lock.release()
        _log.info("agent_stopped", died=died)
        return died

    def _supervise(self, parts: dict[str, Part]) -> bool:
        while not self._stopping.wait(SUPERVISION_S):
            dead = next((name for name, part in parts.items() if not part.alive), None)
            if dead is not None:
                _log.error("part_died", part=dead)
                self._report_error(dead, "the part died", "the agent ends; its service restarts it; see its log")
                return True
            if self._storage_lost():
                return True
            self._watchdog.look()
            self._speak(lambda: self._repetition.tick(time.monotonic()))
        return False

    def _storage_lost(self) -> bool:
        try:
            loss = self._storage.look()
        except StorageError as error:
            _log.error("database_not_seen", problem=str(error))
            return False
        if loss is None:
            return False
        _log.error(loss.event, database=loss.name, problem=loss.problem, hint=loss.hint)
        self._report_error(loss.name, loss.problem, loss.hint)
        return True

    def _parts(self) -> dict[str, Part]:
        """In the order of their start; stopped the other way round."""
        return {
            "sink": self._sink,
            "session": self._session,
            "uploader": self._uploader,
            "outbox-pump": self._pump,
            "updater": self._updater,
            "orders": self._orders,
            "reporter": self._reporter,
            "inbox": self._inbox,
            "recorder": self._recorder,
            "pipeline": self._pipeline,
            "soundness": self._soundness,
        }

    def _build_serving(self) -> None:
        settings = self._settings
        provisioned = load_bundle(settings.gateway.bundle)
        self._store = WeightsStore(settings.gateway.data_dir / "models", provisioned)
        self._take_provision()
        self._started = startup(self._store)
        loaded = self._started.loaded
        slot = loaded.slot
        self._server = ModelServer(loaded.bundle, loaded.weights, slot.weights, slot.version, slot.cohort)
        confirm_start(self._store)
        self._manifest = loaded.bundle.manifest
        first_pass = first_pass_of_this_start(self._database)
        source = make_source(settings.source, self._manifest, self._gateway, first_pass=first_pass, judge=self._judge)
        self._sink = make_sink(settings, judge=self._judge)
        self._pipeline = Pipeline(source, self._server, self._sink)

    def _take_provision(self) -> None:
        """Before anything is written: a gateway that was handed wrong files has not begun to serve."""
        gateway = self._settings.gateway
        self._root = provisioned_root(gateway.root)
        if self._store.is_virgin and not self._floors.initialised:
            self._floors.provision(provisioned_floors(gateway.floors), self._root)

    def _build_recording(self) -> None:
        settings, manifest = self._settings, self._manifest
        self._samples = SampleStore(
            self._samples_db,
            inputs=manifest.inputs,
            classes=manifest.classes,
            proof_share=settings.samples.proof_share,
            max_samples=settings.samples.max_samples,
            label_wait_s=settings.samples.label_wait_s,
        )
        counts = HoldoutCounts(
            self._samples_db, kind=manifest.kind, loss=manifest.loss, bucket_s=settings.monitor.bucket_s
        )
        self._watch = DriftWatch(
            self._database,
            self._outbox,
            self._samples,
            gateway=self._gateway,
            manifest=manifest,
            params=monitor_rule(settings.monitor, manifest),
        )
        self._recorder = Recorder(
            self._pipeline.recordables,
            self._server,
            self._samples_db,
            self._samples,
            counts,
            self._watch,
            self._outbox,
            flagged=lambda: self._reporter.soon(),
            counts_interval_s=settings.report.state_interval_s,
        )

    def _build_link(self) -> None:
        broker, topics, gateway = self._settings.broker.settings().judged_by(self._judge), self._topics, self._gateway
        data = self._settings.gateway.data_dir
        self._events = EventQueue(INBOX_EVENTS)
        self._voice = PresenceVoice(topics, gateway, self._boot_id)
        self._session = MqttSession(
            broker,
            gateway,
            clean_start=False,
            session_expiry_s=SESSION_EXPIRY_S,
            inbox=self._events,
            subscriptions=[
                Subscription(topics.down_filter(gateway)),
                Subscription(topics.release),
                Subscription(topics.bridge),
            ],
            will=self._voice.will,
        )
        self._repetition = PresenceRepetition(self._voice, self._session)
        self._pump = OutboxPump(self._outbox, self._session, topics.event(gateway))
        self._blobs = BlobStore(data / "blobs")
        self._downloader = Downloader(broker, f"{gateway}.down", topics, self._blobs)
        self._order_blobs = BlobStore(data / "base")
        self._order_downloader = Downloader(broker, f"{gateway}.base", topics, self._order_blobs)
        self._uploader = Uploader(broker, f"{gateway}.up", topics, gateway, data / "updates")

    def _build_updates(self) -> None:
        settings = self._settings
        floors = self._floors
        trusted = TrustedReleases(settings.gateway.data_dir / "trust", self._root, floors, time.time)
        self._updater = Updater(
            self._gateway,
            settings.gateway.fleet,
            Parts(self._database, self._outbox, floors, trusted, self._store, self._server, self._downloader),
            forget=self._forget_blob,
            on_activated=self._activated,
            started=self._started,
        )

    def _build_orders(self) -> None:
        training = self._settings.training
        self._supervisor = TrainingSupervisor(self._settings.gateway.data_dir / "work")
        self._work = LocalWork(
            self._supervisor,
            self._order_downloader,
            self._order_blobs,
            self._uploader,
            self._outbox,
            limits=OperatorLimits(
                enabled=training.enabled,
                min_samples=training.min_samples,
                max_rounds_per_hour=training.max_rounds_per_hour,
                max_duration_s=training.max_duration_s,
                worker=WorkerLimits(nice=training.nice, address_space_bytes=training.memory_bytes),
            ),
            serving=self._serving,
            samples_db=self._samples_db.path,
        )
        self._orders = Orders(
            self._database,
            self._session,
            self._work,
            fleet=self._settings.gateway.fleet,
            gateway=self._gateway,
            boot_id=self._boot_id,
            reply_topic=self._topics.reply(self._gateway),
            verify=self._updater.verify_command,
            configure=self._configure,
            identify=self._identify,
        )

    def _receivers(self) -> Receivers:
        return Receivers(
            connected=self._connected,
            disconnected=self._disconnected,
            published=self._published,
            command=lambda payload, retained: self._orders.receive(payload, retained=retained),
            ack=self._acknowledged,
            release=self._updater.on_release_map,
            bridge=self._bridge_seen,
        )

    def _serving(self) -> Serving:
        active = self._server.active
        bundle = self._store.bundle(active.bundle)
        folder = bundle.path if bundle is not None else self._settings.gateway.bundle
        return Serving(active.bundle, folder, self._watch.training_from)

    def _connected(self, connection: int) -> None:
        _log.info("connected", connection=connection)
        self._speak(lambda: self._repetition.connected(connection, time.monotonic()))
        self._pump.on_connected()
        self._reporter.soon()

    def _disconnected(self, event: Disconnected) -> None:
        _log.warning("disconnected", reason=event.reason, retry_in_s=round(event.retry_in_s, 1))
        if event.taken_over:
            self._report_error("link", "another client uses this gateway's id", "give each gateway its own folder")

    def _published(self, event: Published) -> None:
        if not event.ok:
            _log.warning("publication_refused", reason=event.reason)

    def _acknowledged(self, ack: Ack) -> None:
        if ack.epoch is not None and ack.committed:
            try:
                self._outbox.acknowledge(ack.epoch, ack.committed)
            except StorageError as error:
                _log.error("acknowledgement_not_stored", problem=str(error))
        for grant in ack.grants:
            self._uploader.grant(grant)

    def _bridge_seen(self, presence: BridgePresence) -> None:
        self._pump.on_bridge(presence.boot_id, online=presence.online)
        if presence.online:
            self._watch.bridge_started(presence.boot_id)

    def _activated(self, slot: Slot) -> None:
        _log.info("activated", cohort=slot.cohort, version=slot.version, weights=slot.weights)
        self._reporter.soon()

    def _configure(self, order: Configure) -> None:
        if order.state_interval_s is not None:
            self._reporter.set_interval(order.state_interval_s)
        if order.training_enabled is not None:
            self._work.set_enabled(order.training_enabled)

    def _identify(self) -> None:
        self._speak(lambda: self._voice.announce(self._session, self._session.connection))
        self._reporter.soon()

    def _speak(self, say: Callable[[], object]) -> None:
        """Presence is repeated: one that finds no room is said again."""
        try:
            say()
        except TransientError as error:
            _log.info("presence_not_sent", problem=str(error))

    def _say_goodbye(self) -> None:
        if self._session.connected:
            self._speak(lambda: self._voice.farewell(self._session))

    def _wrong_clock(self, problem: str) -> None:
        """Four connections say it at every attempt: reported once a start."""
        if not self._clock_reported:
            self._clock_reported = True
            self._report_error("clock", problem, "set the gateway's clock")

    def _forget_blob(self, digest: str) -> None:
        self._blobs.remove(digest)

    def _report_error(self, place: str, problem: str, hint: str) -> None:
        try:
            self._outbox.put(ErrorEvent(place=place, problem=problem[:2000], hint=hint), Priority.LIFECYCLE)
        except StorageError as error:
            _log.error("error_not_reported", place=place, problem=problem, storage=str(error))

    def _read(self) -> Reading:
        active = self._server.active
        state = State(
            gateway=self._gateway,
            boot_id=self._boot_id,
            agent_version=edge_agent.__version__,
            bundle=active.bundle,
            weights=active.weights,
            weights_version=active.version,
            cohort=active.cohort,
            ota_state=self._updater.state,
            trusted=self._updater.trusted_versions,
            clock=self._updater.clock_trust,
            trainable_samples=self._samples.trainable_count(self._watch.training_from),
            training=self._orders.busy,
            served_samples=self._pipeline.served_samples,
            outbox_depth=self._outbox.depth,
            peak_rss_bytes=peak_rss_bytes(),
        )
        counters: dict[str, int | float | str] = {
            "connected": str(self._session.connected),
            "refused_samples": self._pipeline.refused_samples,
            "unrecorded_samples": self._pipeline.unrecorded_samples,
            "unrecorded_labels": self._pipeline.unrecorded_labels,
            "lost_batches": self._recorder.lost_batches,
            "flags": self._watch.firings,
            "outbox_shed": self._outbox.shed,
            "sink_dropped": self._sink.dropped,
            "last_refusal": self._updater.last_refusal,
        }
        return Reading(state, counters)
