"""What was served, with its labels: kept, counted and watched for drift."""

from collections.abc import Callable

from edge_agent.config import AgentSettings, MonitorSection
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.gathering import GATHERED_SAMPLES
from edge_agent.runtime.model_in_service import ModelInService
from edge_agent.runtime.recorder import Recorder
from edge_agent.runtime.screen import Screen, screen_of
from edge_agent.runtime.screening import Screening
from edge_agent.runtime.storage import AgentStorage
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_held import TOGETHER_S
from edge_agent.runtime.watch_rules import WatchRules, rules_of_release, watch_rules
from edge_agent.samples.holdout import HoldoutCounts
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared
from edge_agent.wire.tasks import task_classes


class SampleRecords:
    """Sample store, drift watch and the recorder that feeds both.

    Args:
        flagged: called after a flag was raised.

    Raises:
        ConfigError: the provisioned bundle serves, and lacks the monitor that the settings ask for.
        DataError: a monitor's constants make no sense.
        StorageError: the disk refuses.
    """

    def __init__(
        self,
        settings: AgentSettings,
        storage: AgentStorage,
        outbox: Outbox,
        model: ModelInService,
        *,
        flagged: Callable[[], None],
    ) -> None:
        manifest = model.manifest
        self._store = SampleStore(
            storage.samples,
            inputs=manifest.inputs,
            classes=manifest.classes,
            proof_share=settings.samples.proof_share,
            max_samples=settings.samples.max_samples,
            label_wait_s=settings.samples.label_wait_s,
            max_bytes=settings.samples.max_bytes,
            reservoir_samples=settings.samples.reservoir_samples,
            unlabelled_samples=settings.samples.unlabelled_samples,
            task_classes=task_classes(manifest),
            ignored_label=manifest.ignored_label,
        )
        counts = HoldoutCounts(
            storage.samples,
            kind=manifest.kind,
            loss=manifest.loss,
            delta=manifest.huber_delta,
            bucket_s=settings.monitor.bucket_s,
        )
        self.watch = DriftWatch(
            storage.agent,
            outbox,
            self._store,
            gateway=settings.gateway.id,
            rules=_first_rules(settings.monitor, model),
            adopt=lambda active: rules_of_release(settings.monitor, _bundle(active)),
            together_s=TOGETHER_S,
        )
        self.screening = Screening(
            storage.samples,
            outbox,
            gateway=settings.gateway.id,
            screen_of=lambda digest: _screen(model, digest) if settings.monitor.sensor_faults else None,
        )
        self.recorder = Recorder(
            model.pipeline.recordables,
            model.server,
            storage.samples,
            self._store,
            counts,
            self.watch,
            self.screening,
            outbox,
            flagged=flagged,
            counts_interval_s=settings.report.state_interval_s,
            gathered_samples=min(GATHERED_SAMPLES, settings.samples.max_samples // 4),
        )

    @property
    def trainable(self) -> int:
        """How many samples a local round may train on now.

        Raises:
            StorageError: the disk refuses.
        """
        return self._store.trainable_count(self.watch.training_from)

    @property
    def refused_labels(self) -> int:
        """How many labels were no class, or none of their sample's task.

        Raises:
            StorageError: the disk refuses.
        """
        return self._store.refused_labels


def _bundle(active: Prepared) -> Bundle:
    return next(iter(active.models.values())).bundle


def _first_rules(section: MonitorSection, model: ModelInService) -> WatchRules:
    """At the start: only what the provisioned bundle lacks is the settings' fault."""
    bundle = _bundle(model.server.active)
    provisioned = bundle.digest == model.store.provisioned.digest
    return watch_rules(section, bundle) if provisioned else rules_of_release(section, bundle)


def _screen(model: ModelInService, digest: str) -> Screen | None:
    bundle = model.store.bundle(digest)
    return None if bundle is None else screen_of(bundle)
