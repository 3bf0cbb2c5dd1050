"""The agent: builds its parts, starts and stops them in order, and watches that they live."""

import os
import secrets
import threading
import time
from typing import TYPE_CHECKING

import structlog

import edge_agent
from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError
from edge_agent.link.service import ServiceNotifier, Watchdog
from edge_agent.link.settings import TimeJudge
from edge_agent.ota.activation import slot_of
from edge_agent.ota.floors import Floors
from edge_agent.ota.slot import Slot
from edge_agent.ota.trust import TrustedReleases
from edge_agent.ota.updater import Parts, Updater
from edge_agent.runtime.fleet_link import FleetLink
from edge_agent.runtime.inbox import Inbox, Receivers
from edge_agent.runtime.instance import STATUS_FILE
from edge_agent.runtime.loaded import keep_what_is_loaded, let_in_soon
from edge_agent.runtime.local_work import LocalWork
from edge_agent.runtime.orders import Orders
from edge_agent.runtime.part import Part
from edge_agent.runtime.personal_rounds import PersonalRounds
from edge_agent.runtime.report import Reporter
from edge_agent.runtime.sample_records import SampleRecords
from edge_agent.runtime.serving_first import ServingFirst
from edge_agent.runtime.soundness import SoundnessCheck
from edge_agent.runtime.state_reading import StateReading
from edge_agent.runtime.training_orders import operator_limits
from edge_agent.training.embedding_cache import EMBEDDINGS_FILE
from edge_agent.training.residual import Residuals
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.messages import BridgePresence, Configure

if TYPE_CHECKING:
    from edge_agent.runtime.adaptation import Adaptation

SUPERVISION_S = 0.5
STOP_S = 1.5
STOP_ALL_S = 4.0
SERVING_ALREADY = ("sink", "pipeline", "recorder")
_log = structlog.get_logger(__name__)


class Agent:
    """One gateway's agent.

    Args:
        first: serves already; after an error here it is the caller's to end.
        stopping: set when the agent is to end, perhaps while it is being made.

    Raises:
        ConfigError: a setting or file is wrong.
        DataError: a monitor's constants make no sense.
        StorageError: the data folder cannot be used.
    """

    def __init__(self, settings: AgentSettings, first: ServingFirst, stopping: threading.Event) -> None:
        self._settings = settings
        self._boot_id = secrets.token_hex(8)
        self._stopping = stopping
        self._lock, self._storage, self._outbox = first.lock, first.storage, first.outbox
        self._errors, self._model = first.errors, first.model
        self._build(first.floors, first.judge)

    def _build(self, floors: Floors, judge: TimeJudge) -> None:
        settings, database = self._settings, self._storage.agent
        self._records = SampleRecords(
            settings, self._storage, self._outbox, self._model, flagged=lambda: self._reporter.soon()
        )
        self._link = FleetLink(settings, self._boot_id, self._outbox, self._errors, judge)
        self._updater = self._make_updater(floors)
        self._training = TrainingSupervisor(settings.gateway.data_dir / "work")
        self._work = self._make_work()
        self._orders = self._make_orders()
        self._adaptation = self._make_adaptation()
        self._reporter = self._make_reporter()
        self._inbox = Inbox(settings.gateway.fleet, self._link.events, self._receivers())
        self._soundness = SoundnessCheck((database, self._storage.samples))
        self._service = ServiceNotifier.from_environment(os.environ)
        pipeline, recorder = self._model.pipeline, self._records.recorder
        pulses = {"pipeline": pipeline.pulse, "recorder": recorder.pulse, "inbox": self._inbox.pulse}
        self._watchdog = Watchdog(self._service, pulses)
        for name, damage in self._storage.damage.items():
            self._errors.tell(name, damage, "the damaged file was set aside beside the new one")

    def run(self) -> bool:
        """Serve until told to stop, and record what was served by then; returns whether a part died instead."""
        parts = self._parts()
        for name in ("recorder", *(name for name in parts if name not in SERVING_ALREADY)):
            parts[name].start()
        gateway = self._settings.gateway.id
        _log.info("agent_started", gateway=gateway, boot=self._boot_id, version=edge_agent.__version__)
        self._service.ready(f"serving as gateway {gateway}")
        keep_what_is_loaded()
        let_in_soon()
        died = self._supervise(parts)
        self._service.stopping()
        self._link.say_goodbye()
        deadline_s = time.monotonic() + STOP_ALL_S
        for part in reversed(parts.values()):
            part.stop(max(0.1, min(STOP_S, deadline_s - time.monotonic())))
        self._training.stop()
        self._storage.close()
        self._lock.release()
        _log.info("agent_stopped", died=died)
        return died

    def _parts(self) -> dict[str, Part]:
        """In the order of their start, but for those that serve, which began before; stopped the other way round."""
        return {
            "sink": self._model.sink,
            "session": self._link.session,
            "uploader": self._link.uploads,
            "outbox-pump": self._link.pump,
            "updater": self._updater,
            "orders": self._orders,
            "reporter": self._reporter,
            "inbox": self._inbox,
            "recorder": self._records.recorder,
            "pipeline": self._model.pipeline,
            "soundness": self._soundness,
            **({} if self._adaptation is None else {"adaptation": self._adaptation}),
        }

    def _supervise(self, parts: dict[str, Part]) -> bool:
        while not self._stopping.wait(SUPERVISION_S):
            dead = next((name for name, part in parts.items() if not part.alive), None)
            if dead is not None:
                _log.error("part_died", part=dead)
                self._errors.tell(dead, "the part died", "the agent ends; its service restarts it; see its log")
                return True
            if self._storage_lost():
                return True
            self._watchdog.look()
            self._link.repeat_presence()
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
        self._errors.tell(loss.name, loss.problem, loss.hint)
        return True

    def _make_updater(self, floors: Floors) -> Updater:
        gateway, model, link = self._settings.gateway, self._model, self._link
        trusted = TrustedReleases(gateway.data_dir / "trust", model.root, floors, time.time)
        return Updater(
            gateway.id,
            gateway.fleet,
            Parts(self._storage.agent, self._outbox, floors, trusted, model.store, model.server, link.downloads),
            forget=link.blobs.remove,
            on_activated=self._activated,
            started=model.started,
        )

    def _make_work(self) -> LocalWork:
        return LocalWork(
            self._training,
            self._link.order_downloads,
            self._link.order_blobs,
            self._link.uploads,
            self._outbox,
            limits=operator_limits(self._settings.training),
            serving=lambda: self._model.serving(self._records.watch.training_from),
            samples_db=self._storage.samples.path,
            held=self._model.store.find_weights,
            residuals=Residuals(self._settings.gateway.data_dir / "residuals"),
            personal=PersonalRounds(self._model.store, lambda: slot_of(self._model.server.active)),
            embeddings_file=self._settings.gateway.data_dir / EMBEDDINGS_FILE,
        )

    def _make_orders(self) -> Orders:
        gateway = self._settings.gateway
        return Orders(
            self._storage.agent,
            self._link.session,
            self._work,
            fleet=gateway.fleet,
            gateway=gateway.id,
            boot_id=self._boot_id,
            reply_topic=self._link.topics.reply(gateway.id),
            verify=self._updater.verify_command,
            configure=self._configure,
            identify=self._identify,
        )

    def _make_adaptation(self) -> "Adaptation | None":
        """What is loaded for it is loaded where it is asked for."""
        section, model = self._settings.adaptation, self._model
        if not section.online:
            return None
        from edge_agent.runtime.adaptation import Adaptation, Surroundings
        from edge_agent.runtime.adaptation_work import AdaptationWork

        around = Surroundings(
            served_samples=lambda: model.pipeline.served_samples,
            busy=lambda: self._orders.busy,
            may_swap=lambda: self._records.watch.may_swap,
            flags=lambda: self._records.watch.firings,
            dropped=lambda problem, hint: self._errors.tell("adaptation", problem, hint),
            changed=lambda: self._reporter.soon(),
        )
        folder = self._settings.gateway.data_dir / "adaptation"
        limits = operator_limits(self._settings.training).worker
        worker = TrainingSupervisor(folder / "work")
        work = AdaptationWork(section, folder, self._storage.samples.path, worker, limits)
        return Adaptation(section, model.server, model.store, work, around)

    def _make_reporter(self) -> Reporter:
        gateway = self._settings.gateway
        reading = StateReading(
            gateway.id,
            self._boot_id,
            self._model,
            self._records,
            self._link,
            self._updater,
            self._orders,
            self._outbox,
            self._adaptation,
        )
        return Reporter(
            self._link.session,
            self._link.topics.state(gateway.id),
            gateway.data_dir / STATUS_FILE,
            read=reading.read,
            interval_s=self._settings.report.state_interval_s,
        )

    def _receivers(self) -> Receivers:
        return Receivers(
            connected=self._connected,
            disconnected=self._link.disconnected,
            published=self._link.published,
            command=lambda payload, retained: self._orders.receive(payload, retained=retained),
            ack=self._link.acknowledged,
            release=self._updater.on_release_map,
            bridge=self._bridge_seen,
        )

    def _connected(self, connection: int) -> None:
        self._link.connected(connection)
        self._reporter.soon()

    def _bridge_seen(self, presence: BridgePresence) -> None:
        self._link.pump.on_bridge(presence.boot_id, online=presence.online)
        if presence.online:
            self._records.watch.bridge_started(presence.boot_id)

    def _activated(self, slot: Slot) -> None:
        _log.info("activated", cohort=slot.cohort, version=slot.version, weights=slot.weights)
        self._reporter.soon()

    def _configure(self, order: Configure) -> None:
        if order.state_interval_s is not None:
            self._reporter.set_interval(order.state_interval_s)
        if order.training_enabled is not None:
            self._work.set_enabled(order.training_enabled)

    def _identify(self) -> None:
        self._link.announce()
        self._reporter.soon()
