"""A local round without labels: descent on an objective that needs none."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.label_shift import estimate_shares
from edge_agent.model.bundle import Bundle
from edge_agent.model.series import Steps
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.descent import Diverged, Place, Unwatched, Watch, descend
from edge_agent.training.evaluation import BLOCK_ROWS
from edge_agent.training.fed_ade import label_free_calibration, see
from edge_agent.training.head_training import scored_model
from edge_agent.training.held_out import Comparison
from edge_agent.training.job import TrainingJob, WorkFailed
from edge_agent.training.local_round import (
    Data,
    LocalRound,
    failing,
    judged_before,
    left_out,
    schedule_of,
    scores_of,
    too_slow,
    update_norm,
)
from edge_agent.training.personal import parted
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.training.usable import with_finite_output
from edge_agent.wire.tensors import Weights

CLASS_PRIOR = "class_prior"
Features = Mapping[str, NDArray[Any]]


class PriorStep:
    """A training step that is told the shares of the classes; labels are of no account to it."""

    def __init__(self, step: TrainingStep, shares: NDArray[np.float64] | None) -> None:
        self._step = step
        self._told = {} if shares is None else {CLASS_PRIOR: shares.astype(np.float32)}

    def step(
        self,
        features: Features,
        labels: NDArray[Any],
        *,
        learning_rate: float,
        scalars: Mapping[str, float] | None = None,
    ) -> float:
        """Train on one batch; returns its objective before the step."""
        return self._step.step(
            features, None, learning_rate=learning_rate, scalars=scalars or {}, class_inputs=self._told
        )

    def steps(
        self,
        features: Features,
        labels: NDArray[Any],
        *,
        learning_rates: Sequence[float],
        scalars: Mapping[str, float] | None = None,
    ) -> Steps:
        """Train on several batches of one size in turn."""
        return self._step.steps(
            features, None, learning_rates=learning_rates, scalars=scalars or {}, class_inputs=self._told
        )

    def steps_at_once(self, batch_bytes: int) -> int:
        """How many batches :meth:`steps` takes at best."""
        return self._step.steps_at_once(batch_bytes)

    @property
    def reports(self) -> Mapping[str, float]:
        """What the last step said of itself."""
        return self._step.reports

    def weights(self) -> Weights:
        """A copy of every trainable tensor of the bundle."""
        return self._step.weights()


def is_label_free(bundle: Bundle, training_graph: str) -> bool:
    """Whether a training graph takes no labels.

    Raises:
        DataError: no such graph.
    """
    return bundle.training_graph(training_graph).label_input is None


def run_label_free_round(
    bundle: Bundle,
    base: Weights,
    features: Features,
    job: TrainingJob,
    *,
    held_out: Data | None = None,
    watch: Watch | None = None,
) -> LocalRound | WorkFailed:
    """Train from the base weights on samples without labels.

    Args:
        base: the weights that the bridge sent, with the gateway's own values of personal tensors.
        features: (n, ...) by input name, in the order of time; for a graph of the head embeddings.
        job: its graph takes no labels.
        held_out: labelled samples to judge the update on, if there are any.
        watch: as of a labelled round.

    Returns:
        The round; its metrics have ``label-free-loss``, the objective on the last batch, in the place of the losses
        on labelled samples, and ``class-share-max``, the largest share that the batches were drawn towards. Or why
        there is none, as of a labelled round.

    Raises:
        DataError: base weights or features do not fit the bundle (named).
    """
    count = _count(features)
    refused = _too_few(count, job)
    if refused is not None:
        return refused
    started_s = time.monotonic()
    usable = with_finite_output(scored_model(bundle, job.training_graph, base, threads=job.limits.threads), features)
    if not usable.all():
        features, count = {name: array[usable] for name, array in features.items()}, int(usable.sum())
        refused = failing(usable) or _too_few(count, job)
        if refused is not None:
            return refused
    judged = judged_before(bundle, base, held_out, job) if held_out is not None and len(held_out.labels) else None
    shares = _shares(bundle, base, features, job)
    try:
        trained, place, rates = _trained(bundle, base, features, shares, job, watch or Unwatched())
    except Diverged as error:
        return WorkFailed(reason="non-finite", detail=error.problem)
    if place.epochs < 1:
        return too_slow(place, job)
    delta, personal = parted(bundle, bundle.training_graph(job.training_graph), base, trained)
    norm = update_norm(delta)
    if not math.isfinite(norm + update_norm(personal)):
        return WorkFailed(reason="non-finite", detail="the trained weights")
    metrics: dict[str, int | float] = {
        "num-examples": count,
        "label-free-loss": place.loss,
        "update-norm": norm,
        "epochs-done": place.epochs,
        **({"steps-skipped": place.skipped} if place.skipped else {}),
        **left_out(usable),
        **({} if shares is None else {"class-share-max": float(shares.max())}),
        **rates,
    }
    if judged is not None:
        comparison = Comparison(judged[1], scores_of(bundle, trained, judged[0], job))
        metrics |= comparison.metrics()
        if comparison.made_worse and not job.send_worse:
            return WorkFailed(reason="made-worse", detail=comparison.words(), metrics=metrics)
    if job.split_half and place.epochs >= job.epochs:
        agreement = _agreement(bundle, base, features, shares, job)
        metrics |= {} if agreement is None else {SPLIT_HALF_KEY: agreement}
    metrics["train-duration-s"] = time.monotonic() - started_s
    return LocalRound(delta, metrics, personal)


def _too_few(count: int, job: TrainingJob) -> WorkFailed | None:
    if count >= max(job.min_samples, 1):
        return None
    return WorkFailed(reason="too-few-samples", detail=f"{count} of {job.min_samples}")


def _trained(
    bundle: Bundle,
    base: Weights,
    features: Features,
    shares: NDArray[np.float64] | None,
    job: TrainingJob,
    watch: Watch,
) -> tuple[Weights, Place, dict[str, int | float]]:
    """Trained weights, where the descent ended, and what its schedule tells."""
    step = PriorStep(TrainingStep(bundle, job.training_graph, base, threads=job.limits.threads), shares)
    schedule = schedule_of(bundle, base, job)
    place = descend(
        step,
        features,
        np.zeros(_count(features), np.int64),
        schedule,
        epochs=job.epochs,
        batch_size=job.batch_size,
        seed=job.seed,
        watch=watch,
        scalars=job.scalars,
    )
    return step.weights(), place, schedule.metrics()


def _agreement(
    bundle: Bundle, base: Weights, features: Features, shares: NDArray[np.float64] | None, job: TrainingJob
) -> float | None:
    """The cosine of the updates of two halves, as of a labelled round; without labels the halves are drawn plainly."""
    updates, graph = [], bundle.training_graph(job.training_graph)
    for rows in halves(np.zeros(_count(features)), job.seed):
        half = {name: array[np.sort(rows)] for name, array in features.items()}
        try:
            weights, _, _ = _trained(bundle, base, half, shares, job, Unwatched())
        except Diverged:
            return None
        updates.append(parted(bundle, graph, base, weights)[0])
    return cosine(updates[0], updates[1]) if updates else None


def _count(features: Features) -> int:
    return len(next(iter(features.values())))


def _shares(bundle: Bundle, base: Weights, features: Features, job: TrainingJob) -> NDArray[np.float64] | None:
    """What the batches are drawn towards: the bundle's shares, or those estimated from all samples; None: all equal."""
    calibration = label_free_calibration(bundle)
    classes = bundle.manifest.classes or 0
    prior = None if calibration is None or not len(calibration.class_prior) else calibration.class_prior
    if not job.label_shift:
        return prior
    model = scored_model(bundle, job.training_graph, base, threads=job.limits.threads)
    count = _count(features)
    parts = []
    for start in range(0, count, BLOCK_ROWS):
        block = {name: array[start : start + BLOCK_ROWS] for name, array in features.items()}
        parts.append(see(model, bundle.manifest, block).probabilities)
    seen = np.concatenate([part for part in parts if part is not None])
    return estimate_shares(seen, np.ones(classes) if prior is None else prior)
