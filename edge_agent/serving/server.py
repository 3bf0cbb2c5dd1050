"""Serving: one active model, replaced in one step between two batches."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError, RejectedUpdate, WireError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.samples.record import SampleBatch
from edge_agent.samples.tasks import task_of
from edge_agent.serving.probe import RecentRows, check_predictions, probe_features
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tasks import task_names
from edge_agent.wire.tensors import Weights, check_weights

EMBEDDING_MONITORS = ("label-free", "accuracy")
"""Monitors that judge embeddings where a model gives them."""
DISOWNED_KEPT = 16
RUNS_S = 0.005
"""Predictions wait no longer for those that are made with them."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Weights that this gateway made of a release; no release itself.

    Attributes:
        digest: of release and overlay together, as weights are named.
        batches: of unlabelled samples that made it.
        release: digest of the release that it lies on.
    """

    digest: str
    batches: int
    release: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is built and probed, and may be swapped in.

    Attributes:
        models: a model for each of the bundle's tasks, the first first; of a bundle without tasks one, under "".
        bundle: the bundle's digest.
        weights: the digest of the release's weights.
        version: the weights' version in their cohort.
        embedding: the output that is handed on with each prediction, for the monitors; None: none.
        overlay: what lies on the release; None: nothing.
        disowned: digests of the latest overlays on this release that labels have shown to be worse than it.
    """

    models: Mapping[str, InferenceModel]
    bundle: str
    weights: str
    version: int
    cohort: str
    embedding: str | None = None
    overlay: Overlay | None = None
    disowned: tuple[str, ...] = ()

    @property
    def made_by(self) -> str:
        """The digest of the weights that predict: the overlay's, where there is one."""
        return self.weights if self.overlay is None else self.overlay.digest

    @property
    def tasks(self) -> tuple[str, ...]:
        """The bundle's tasks, that of samples that name none first; empty for a bundle without tasks."""
        return () if "" in self.models else tuple(self.models)

    def model(self, task: str | None) -> InferenceModel:
        """The model of a task of the bundle; one without tasks has the same for all.

        Raises:
            DataError: the bundle has tasks, but not this one.
        """
        tasks = self.tasks
        name = "" if not tasks else task or tasks[0]
        if name not in self.models:
            raise DataError(f"the bundle has no task {name!r} (it has {', '.join(tasks)})")
        return self.models[name]


@dataclass(slots=True)  # not frozen: one is made for every batch, and a frozen one takes three times as long
class Served:
    """Predictions, and what made them; not changed once they are handed on.

    Attributes:
        outputs: (n, ...) the primary output, a row a sample.
        bundle: the digest of the bundle that served.
        weights: the digest of the weights that served; with an overlay its own.
        embeddings: (n, ...) of the same run, where a monitor of the bundle asks for them.
        overlay: what lay on the release of that version; None: nothing.
    """

    outputs: NDArray[np.float32]
    bundle: str
    weights: str
    version: int
    cohort: str
    embeddings: NDArray[Any] | None = None
    overlay: Overlay | None = None


class ModelServer:
    """Predictions by the active model; synchronous, no thread, no network, no disk.

    ``process`` belongs to one thread; every other method may be called from others meanwhile. What is swapped in is a
    release. An overlay is laid on it and taken off it beside that: whatever activates, reverts or falls back swaps,
    and so ends the overlay in the same step.

    Args:
        bundle: the bundle to serve first.
        weights: its weights.
        weights_digest: SHA-256 of the weights' file.
        version: the weights' version in their cohort.
        cohort: the gateway's cohort.
        embeddings: whether monitors get them that ask for them.

    Raises:
        RejectedUpdate: the weights do not fit the bundle (named).
        DataError: the bundle's graph cannot be run.
    """

    def __init__(
        self,
        bundle: Bundle,
        weights: Weights,
        weights_digest: str,
        version: int,
        cohort: str,
        *,
        embeddings: bool = True,
    ) -> None:
        self._recent = RecentRows()
        self._embeddings = embeddings
        self._changing = threading.Lock()
        self._active = self._release = self.prepare(bundle, weights, weights_digest, version, cohort)

    @property
    def active(self) -> Prepared:
        """The model that serves now."""
        return self._active

    @property
    def release(self) -> Prepared:
        """The release that serves, without what may lie on it; another object after every activation."""
        return self._release

    def process(self, batch: SampleBatch, run_rows: int | None = None) -> Served:
        """Predict a batch of one task; the whole batch by one model.

        Args:
            run_rows: samples that one run of the graph predicts; None: all. Where runs take longer than ``RUNS_S``,
                only the first rows are predicted, at least those of a run.

        Raises:
            DataError: the features do not fit the model's inputs (named), or the bundle has no such task.
        """
        active = self._active
        model = active.model(task_of(batch))
        if run_rows is None or run_rows >= len(batch.ids):
            served = _run(model, active, batch.features)
        else:
            served = _run_often(model, active, batch.features, run_rows)
        self._recent.note(batch.features, served.outputs)
        return served

    def prepare(self, bundle: Bundle, weights: Weights, weights_digest: str, version: int, cohort: str) -> Prepared:
        """Build a model beside the active one and try it once.

        It is tried on the last rows served where they fit its inputs, else on zeros.

        Raises:
            RejectedUpdate: ``unfit``: the weights do not fit the bundle, or predictions are of a
                wrong shape or, on rows that the active model predicted, not finite.
            DataError: the bundle's graph cannot be built or run.
        """
        _refuse_unfit(weights, bundle)
        tasks = task_names(bundle.manifest)
        frozen = bundle.frozen_tensors()
        models = {task: InferenceModel(bundle, weights, task=task, frozen=frozen) for task in tasks} or {
            "": InferenceModel(bundle, weights)
        }
        embedding = watched_embedding(bundle.manifest) if self._embeddings else None
        prepared = Prepared(models, bundle.digest, weights_digest, version, cohort, embedding)
        probe = probe_features(bundle.manifest.inputs, self._recent.finite)
        if probe is not None:
            for model in models.values():
                check_predictions(_run(model, prepared, probe.features).outputs, probe)
        return prepared

    def shadow(self, prepared: Prepared, batch: SampleBatch) -> Served:
        """Predict a batch by a model that is not active; the active one is not touched.

        Raises:
            DataError: the features do not fit that model's inputs (named).
        """
        return _run(prepared.model(task_of(batch)), prepared, batch.features)

    def swap(self, prepared: Prepared) -> Prepared:
        """Make a prepared release the active one from the next batch on; the former one is returned.

        Raises:
            ValueError: it is an overlay, which is laid on a release and never becomes one.
        """
        if prepared.overlay is not None:
            raise ValueError(f"overlay {prepared.overlay.digest} is no release")
        with self._changing:
            former = self._active
            self._active = self._release = prepared
        return former

    def prepare_overlay(self, on: Prepared, bundle: Bundle, weights: Weights, digest: str, batches: int) -> Prepared:
        """Build and try release and overlay together; see :meth:`prepare`.

        Args:
            on: the release, as :attr:`release` gave it.
            bundle: its bundle.
            weights: of release and overlay together.

        Raises:
            RejectedUpdate, DataError: as :meth:`prepare`.
        """
        made = self.prepare(bundle, weights, on.weights, on.version, on.cohort)
        return replace(made, overlay=Overlay(digest, batches, on.weights))

    def lay(self, overlaid: Prepared, *, on: Prepared) -> bool:
        """Serve an overlay from the next batch on, unless another release serves by now; whether it serves."""
        with self._changing:
            if self._release is not on or overlaid.overlay is None:
                return False
            self._active = replace(overlaid, disowned=self._active.disowned)
        return True

    def take_off(self, *, on: Prepared, worse: bool = False) -> bool:
        """Serve the release alone from the next batch on; whether an overlay on it served till now.

        Args:
            on: the release that it lay on; another that serves by now is left alone.
            worse: what the overlay served is no account of the release or of the data: monitors pass over it.
        """
        with self._changing:
            laid = self._active.overlay
            if self._release is not on or laid is None:
                return False
            disowned = (*self._active.disowned, *([laid.digest] if worse else []))[-DISOWNED_KEPT:]
            self._active = replace(on, disowned=disowned)
        return True


def _refuse_unfit(weights: Weights, bundle: Bundle) -> None:
    try:
        check_weights(weights, bundle.manifest.trainable)
    except WireError as error:
        raise RejectedUpdate("unfit", str(error)) from None


def watched_embedding(manifest: Manifest) -> str | None:
    """The embedding that monitors of a bundle judge: the first, where it has one and such a monitor."""
    if not any(name in manifest.monitors for name in EMBEDDING_MONITORS):
        return None
    return next((output.name for output in manifest.outputs if output.role == "embedding"), None)


def _run(model: InferenceModel, prepared: Prepared, features: Mapping[str, NDArray[Any]]) -> Served:
    made = (prepared.bundle, prepared.made_by, prepared.version, prepared.cohort)
    if prepared.embedding is None:
        return Served(np.asarray(model.predict(features), dtype=np.float32), *made, overlay=prepared.overlay)
    outputs = model.run(features, [model.primary, prepared.embedding])
    embeddings = outputs[prepared.embedding]
    return Served(np.asarray(outputs[model.primary], dtype=np.float32), *made, embeddings, prepared.overlay)


def _run_often(
    model: InferenceModel, prepared: Prepared, features: Mapping[str, NDArray[Any]], run_rows: int
) -> Served:
    made = (prepared.bundle, prepared.made_by, prepared.version, prepared.cohort)
    wanted = [model.primary] if prepared.embedding is None else [model.primary, prepared.embedding]
    primary, *embeddings = model.predict_in_runs(features, wanted, run_rows=run_rows, most_s=RUNS_S)
    outputs = np.asarray(primary, dtype=np.float32)
    return Served(outputs, *made, embeddings[0] if embeddings else None, prepared.overlay)
