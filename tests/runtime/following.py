"""A gateway that follows its stream: real store, server, files and adapter; a clock of its own; a worker at hand."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.config import AdaptationSection
from edge_agent.errors import DataError
from edge_agent.link.database import open_database
from edge_agent.link.durable import make_directory, read_file, remove_directory, write_file
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.ota.activation import slot_of
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import startup
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.adaptation import Adaptation, Surroundings
from edge_agent.runtime.adaptation_work import AdaptationWork
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer
from edge_agent.training.adaptation import follow
from edge_agent.training.job import OVERLAY_FILE, AdaptationJob, WorkerLimits
from edge_agent.training.supervisor import TrainingOutcome
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import Weights, decode_weights, encode_weights
from tests.training.label_free_bundle import CLASSES, gaussian

SECTION = {
    "online": True,
    "eta_min": 0.02,
    "eta_max": 0.2,
    "batch_size": 32,
    "interval_s": 10.0,
    "judge_within_s": 100.0,
    "max_swaps_per_hour": 12,
}


@dataclass
class WorkerAtHand:
    """What the worker process does, done here: the same adapter on the same files. It can be killed."""

    folder: Path
    outcome: TrainingOutcome | None = None
    fails: bool = False
    started: int = 0

    @property
    def busy(self) -> bool:
        return self.outcome is not None

    def start(self, job: AdaptationJob) -> None:
        self.started += 1
        folder = self.folder / "job"
        remove_directory(folder)
        make_directory(folder)
        payload = read_file(job.weights_file)
        assert sha256_hex(payload) == job.weights
        if self.fails:
            self.outcome = TrainingOutcome(job.command_id, ok=False, reason="crashed", detail="signal SIGKILL")
            return
        try:
            done = follow(job, load_bundle(job.bundle_dir, digest=job.bundle), decode_weights(payload))
        except DataError as error:
            self.outcome = TrainingOutcome(job.command_id, ok=False, reason="bad-samples", detail=str(error))
            return
        if done.overlay is not None:
            write_file(folder / OVERLAY_FILE, done.overlay)
        overlay = None if done.overlay is None else folder / OVERLAY_FILE
        self.outcome = TrainingOutcome(job.command_id, ok=True, overlay=overlay, metrics=done.metrics)

    def poll(self) -> TrainingOutcome | None:
        outcome, self.outcome = self.outcome, None
        return outcome

    def stop(self) -> None:
        self.outcome = None

    def discard(self, command_id: str) -> None:
        remove_directory(self.folder / "job")

    def sweep(self, keep: set[str]) -> None:
        remove_directory(self.folder / "job")


@dataclass
class Site:
    """Its parts; `restarted` as after a kill."""

    path: Path
    bundle: Bundle
    settings: dict[str, object] = field(default_factory=dict)
    now_s: float = 0.0
    busy: bool = False
    monitors_let: bool = True
    flags: int = 0
    served: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.samples_db = open_database(self.path / "samples.db", synchronous="NORMAL")
        self.samples = SampleStore(
            self.samples_db,
            inputs=self.bundle.manifest.inputs,
            classes=CLASSES,
            proof_share=0.0,
            max_samples=5000,
            label_wait_s=1e9,
        )
        self.store = WeightsStore(self.path / "models", self.bundle)
        loaded = startup(self.store).loaded
        slot = loaded.slot
        self.server = ModelServer(loaded.bundle, loaded.weights, slot.weights, slot.version, slot.cohort)
        self.worker = WorkerAtHand(self.path / "adaptation" / "work")
        section = AdaptationSection.model_validate({**SECTION, **self.settings})
        around = Surroundings(
            served_samples=lambda: self.served,
            busy=lambda: self.busy,
            may_swap=lambda: self.monitors_let,
            flags=lambda: self.flags,
            dropped=lambda problem, hint: self.told.append(problem),
        )
        work = AdaptationWork(section, self.path / "adaptation", self.samples_db.path, self.worker, WorkerLimits())
        self.adaptation = Adaptation(section, self.server, self.store, work, around, monotonic_s=lambda: self.now_s)

    def serve(
        self, count: int, *, moved: float = 1.2, shares: NDArray[np.float64] | None = None, labels: bool = True
    ) -> float:
        """Samples, every fourth of them holdout and labelled; returns the share that was right."""
        features, truth = gaussian(count, self.served, shares, moved)
        ids = [f"s{self.served + row}" for row in range(count)]
        held = [row % 4 == 0 for row in range(count)]
        batch = SampleBatch(ids, [float(self.served + row) for row in range(count)], dict(features), holdouts=held)
        made = self.server.process(batch)
        self.samples.add(batch, made, self.now_s)
        if labels:
            told = [Label(name, int(value)) for name, value, out in zip(ids, truth, held, strict=True) if out]
            self.samples.label(told, self.now_s)
        self.served += count
        return float((made.outputs.argmax(axis=1) == truth).mean())

    def later(self, seconds: float = 11.0) -> None:
        """Time passes; what is due is begun, and what it came to is taken."""
        self.now_s += seconds
        self.adaptation.look()
        self.adaptation.look()

    def activate(self, weights: Weights, version: int) -> Slot:
        """A release comes into service, as the updater does it: the pointer first, then the swap."""
        digest = self.store.add_weights(encode_weights(weights))
        slot = Slot(bundle=self.bundle.digest, weights=digest, cohort="root", version=version)
        prepared = self.server.prepare(self.bundle, weights, digest, version, "root")
        self.store.point(self.store.pointer().activated(slot).committed())
        self.server.swap(prepared)
        return slot

    @property
    def laid(self) -> str | None:
        overlay = self.server.active.overlay
        return None if overlay is None else overlay.digest

    @property
    def slot(self) -> Slot:
        return slot_of(self.server.active)

    def predicted(self) -> NDArray[np.float32]:
        """What serves now says of fixed samples."""
        x = gaussian(16, 4242)[0]
        ids = [f"p{row}" for row in range(16)]
        return self.server.process(SampleBatch(ids, [0.0] * 16, dict(x))).outputs

    def restarted(self) -> "Site":
        """After a kill."""
        self.close()
        return Site(self.path, self.bundle, self.settings, self.now_s, served=self.served, told=self.told)

    def close(self) -> None:
        self.samples_db.close()
