"""The gateway's state as of now, read from the parts that know it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import edge_agent
from edge_agent.link.outbox import Outbox
from edge_agent.ota.updater import Updater
from edge_agent.runtime.adaptation_status import ADAPTATION_KEY, AdaptationStatus
from edge_agent.runtime.drift_status import DRIFT_KEY
from edge_agent.runtime.fleet_link import FleetLink
from edge_agent.runtime.model_in_service import ModelInService
from edge_agent.runtime.orders import Orders
from edge_agent.runtime.report import Reading, peak_rss_bytes
from edge_agent.runtime.sample_records import SampleRecords
from edge_agent.runtime.watch_flag import told_overlay
from edge_agent.runtime.watch_status import drift_status
from edge_agent.wire.messages import State

if TYPE_CHECKING:
    from edge_agent.runtime.adaptation import Adaptation


@dataclass(frozen=True, slots=True)
class StateReading:
    """Reads the state message and the counters of the status file."""

    gateway: str
    boot_id: str
    model: ModelInService
    records: SampleRecords
    link: FleetLink
    updater: Updater
    orders: Orders
    outbox: Outbox
    adaptation: "Adaptation | None" = None

    def read(self) -> Reading:
        """State and counters.

        Raises:
            StorageError: the disk refuses.
        """
        drift = drift_status(self.records.watch, self.records.screening.open_faults)
        adaptation = AdaptationStatus() if self.adaptation is None else self.adaptation.status
        told = {DRIFT_KEY: drift.to_document(), ADAPTATION_KEY: adaptation.to_document()}
        return Reading(self._state(), self._counters(), told)

    def _state(self) -> State:
        active = self.model.server.active
        return State(
            gateway=self.gateway,
            boot_id=self.boot_id,
            agent_version=edge_agent.__version__,
            bundle=active.bundle,
            weights=active.weights,
            weights_version=active.version,
            cohort=active.cohort,
            ota_state=self.updater.state,
            trusted=self.updater.trusted_versions,
            clock=self.updater.clock_trust,
            trainable_samples=self.records.trainable,
            training=self.orders.busy,
            served_samples=self.model.pipeline.served_samples,
            outbox_depth=self.outbox.depth,
            peak_rss_bytes=peak_rss_bytes(),
            overlay=told_overlay(active),
        )

    def _counters(self) -> dict[str, int | float | str]:
        pipeline = self.model.pipeline
        return {
            "connected": self.link.session.connected,
            "broker_refusal": self.link.refusal,
            "refused_samples": pipeline.refused_samples,
            "refused_messages": pipeline.refused_messages,
            "unknown_tasks": " ".join(f"{task}={count}" for task, count in sorted(pipeline.unknown_tasks.items())),
            "refused_labels": self.records.refused_labels,
            "unrecorded_samples": pipeline.unrecorded_samples,
            "unrecorded_labels": pipeline.unrecorded_labels,
            "lost_batches": self.records.recorder.lost_batches,
            "verdict": self.records.watch.standing.policy.verdict.value,
            "flags": self.records.watch.firings,
            "sensor_faults": "; ".join(fault.words() for fault in self.records.screening.open_faults),
            "faulty_samples": self.records.screening.faulty_samples,
            "outbox_shed": self.outbox.shed,
            "sink_dropped": self.model.sink.dropped,
            "last_refusal": self.updater.last_refusal,
        }
