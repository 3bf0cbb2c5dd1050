"""One local round: data, descent from given base weights, and what came of it."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.descent import Diverged, Place, Unwatched, Watch, descend, minibatches
from edge_agent.training.evaluation import Scores, scores
from edge_agent.training.fed_ade import FedAdeRate, fed_ade_params
from edge_agent.training.head_training import scored_model
from edge_agent.training.held_out import Comparison
from edge_agent.training.job import TrainingJob, WorkFailed
from edge_agent.training.personal import parted
from edge_agent.training.schedule import ConstantRate, Schedule
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.training.usable import too_many_left_out, with_finite_loss
from edge_agent.wire.tensors import Weights

__all__ = ["Data", "LocalRound", "minibatches", "run_local_round", "split_half_cosine", "update_norm"]


@dataclass(frozen=True, slots=True)
class Data:
    """Labelled samples side by side.

    Attributes:
        features: (n, ...) by input name.
        labels: (n,).
    """

    features: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]

    def rows(self, rows: NDArray[np.intp]) -> "Data":
        """Some of them."""
        return Data({name: array[rows] for name, array in self.features.items()}, self.labels[rows])


@dataclass(frozen=True, slots=True)
class LocalRound:
    """What a round gives.

    Attributes:
        delta: trained minus base, of the shared tensors that the graph changes: what is sent.
        personal: the trained values of every personal tensor of the bundle, which stay here; empty if none changed.
        metrics: ``num-examples``; ``clma-loss``, the mean loss of the base weights on the training
            samples (L_c of Algorithm 2); ``loss-after``, that of the trained ones;
            ``update-norm``, the L2 norm of the delta; ``train-duration-s``; ``epochs-done``; ``classes-seen``
            of a classification; ``steps-skipped``, if any were; ``unusable-examples``, samples of which the base
            weights say nothing finite, if there were any: they are left out; those of :class:`Comparison`; where the
            job asks for it and the data allow, ``clma-split-half``.
    """

    delta: Weights
    metrics: dict[str, int | float]
    personal: Weights = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Trained:
    weights: Weights
    place: Place
    rates: dict[str, int | float]


def run_local_round(
    bundle: Bundle,
    base: Weights,
    features: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    job: TrainingJob,
    *,
    held_out: Data | None = None,
    rehearsed: int = 0,
    watch: Watch | None = None,
) -> LocalRound | WorkFailed:
    """Train from the base weights.

    Args:
        base: the weights that the bridge sent, with the gateway's own values of personal tensors.
        features: (n, ...) by input name; for a graph of the head the embeddings by the embedding's name.
        labels: (n,).
        job: graph, learning rate, epochs, batch size, seed.
        held_out: samples to judge the update on.
        rehearsed: so many of the samples are old ones, which do not count for the least number.
        watch: may end the descent; what was trained counts if one pass over the data is done.

    Returns:
        The round, or why there is none: too few samples or classes, too little time, a loss or weight that is
        not finite, or held-out samples that are served worse (see :class:`Comparison`).

    Raises:
        DataError: base weights, features or labels do not fit the bundle (named), or the graph trains nothing that
            is shared.

    Source: N L et al., CODS-COMAD 2024, Algorithm 2 for L_c; the drift flag itself is set by the
        monitor and the bridge, not here.
    """
    data = Data(features, labels)
    refused = _too_little(bundle, data, job, len(labels) - rehearsed)
    if refused is not None:
        return refused
    started_s = time.monotonic()
    before = scores_of(bundle, base, data, job)
    usable = with_finite_loss(before)
    if not usable.all():
        data, before, rehearsed = data.rows(np.flatnonzero(usable)), before.rows(usable), int(usable[:rehearsed].sum())
        refused = failing(usable) or _too_little(bundle, data, job, len(data.labels) - rehearsed)
        if refused is not None:
            return refused
    judged = judged_before(bundle, base, held_out, job) if held_out is not None else None
    try:
        trained = _train(bundle, base, data, job, watch or Unwatched())
    except Diverged as error:
        return WorkFailed(reason="non-finite", detail=error.problem)
    if trained.place.epochs < 1:
        return too_slow(trained.place, job)
    after = scores_of(bundle, trained.weights, data, job).mean()
    delta, personal = parted(bundle, bundle.training_graph(job.training_graph), base, trained.weights)
    norm = update_norm(delta)
    if not math.isfinite(norm + update_norm(personal)) or not math.isfinite(after.loss):
        return WorkFailed(reason="non-finite", detail="the loss of the trained weights")
    metrics: dict[str, int | float] = {
        "num-examples": len(data.labels),
        "clma-loss": before.mean().loss,
        "loss-after": after.loss,
        "update-norm": norm,
        "epochs-done": trained.place.epochs,
        **({"steps-skipped": trained.place.skipped} if trained.place.skipped else {}),
        **({"rehearsed-examples": rehearsed} if rehearsed else {}),
        **left_out(usable),
        **_classes_seen(bundle, data),
        **trained.rates,
    }
    if judged is not None:
        comparison = Comparison(judged[1], scores_of(bundle, trained.weights, judged[0], job))
        metrics |= comparison.metrics()
        if comparison.made_worse and not job.send_worse:
            metrics["train-duration-s"] = time.monotonic() - started_s
            return WorkFailed(reason="made-worse", detail=comparison.words(), metrics=metrics)
    whole = trained.place.epochs >= job.epochs
    agreement = split_half_cosine(bundle, base, data.features, data.labels, job) if job.split_half and whole else None
    if agreement is not None:
        metrics[SPLIT_HALF_KEY] = agreement
    metrics["train-duration-s"] = time.monotonic() - started_s
    return LocalRound(delta, metrics, personal)


def split_half_cosine(
    bundle: Bundle, base: Weights, features: Mapping[str, NDArray[Any]], labels: NDArray[Any], job: TrainingJob
) -> float | None:
    """How far two halves of the data agree on the update: the cosine of the updates that they give.

    Args: as :func:`run_local_round`.

    Returns:
        In [-1, 1]; ``None`` for fewer than four samples, a half that diverges or one that changes nothing.

    Cost: as much time as the round itself; each half is trained as the whole was.
    """
    data, updates, graph = Data(features, labels), [], bundle.training_graph(job.training_graph)
    for rows in halves(labels, job.seed):
        try:
            # The halves lie in the order of their labels; a schedule that looks at the stream needs that of time.
            ordered = rows if job.schedule == "constant" else np.sort(rows)
            half = _train(bundle, base, data.rows(ordered), job, Unwatched())
        except Diverged:
            return None
        updates.append(parted(bundle, graph, base, half.weights)[0])
    return cosine(updates[0], updates[1]) if updates else None


def update_norm(delta: Weights) -> float:
    """L2 norm over all tensors, summed in float64."""
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in delta.values()))


def _train(bundle: Bundle, base: Weights, data: Data, job: TrainingJob, watch: Watch) -> _Trained:
    """Step and schedule are made anew for every descent: neither carries anything over."""
    step = TrainingStep(bundle, job.training_graph, base, threads=job.limits.threads)
    schedule = schedule_of(bundle, base, job)
    place = descend(
        step,
        data.features,
        data.labels,
        schedule,
        epochs=job.epochs,
        batch_size=job.batch_size,
        seed=job.seed,
        watch=watch,
        scalars=job.scalars,
    )
    return _Trained(step.weights(), place, schedule.metrics())


def schedule_of(bundle: Bundle, base: Weights, job: TrainingJob) -> Schedule:
    """The learning rate of each step, as the job says.

    Raises:
        DataError: rates that are out of order, or a damaged calibration.
    """
    if job.schedule == "constant":
        return ConstantRate(job.learning_rate)
    model = scored_model(bundle, job.training_graph, base, threads=job.limits.threads)
    return FedAdeRate(
        model, bundle.manifest, fed_ade_params(bundle), minimum=job.learning_rate_min, maximum=job.learning_rate
    )


def scores_of(bundle: Bundle, weights: Weights, data: Data, job: TrainingJob) -> Scores:
    """Each sample's loss under the weights, by the model that the job's graph trains."""
    model = scored_model(bundle, job.training_graph, weights, threads=job.limits.threads)
    return scores(model, bundle.manifest, data.features, data.labels)


def judged_before(bundle: Bundle, base: Weights, held_out: Data, job: TrainingJob) -> tuple[Data, Scores]:
    """The held-out samples of which the base weights say something finite, and what."""
    scored = scores_of(bundle, base, held_out, job)
    usable = with_finite_loss(scored)
    return (held_out, scored) if usable.all() else (held_out.rows(np.flatnonzero(usable)), scored.rows(usable))


def failing(usable: NDArray[np.bool_]) -> WorkFailed | None:
    """The end of a round whose base weights, not some samples, are to blame."""
    if not too_many_left_out(usable):
        return None
    return WorkFailed(
        reason="non-finite", detail=f"the base weights on {int((~usable).sum())} of {len(usable)} training samples"
    )


def left_out(usable: NDArray[np.bool_]) -> dict[str, int | float]:
    """How many samples were, if any."""
    return {} if usable.all() else {"unusable-examples": int((~usable).sum())}


def _too_little(bundle: Bundle, data: Data, job: TrainingJob, new: int) -> WorkFailed | None:
    if new < max(job.min_samples, 1):
        return WorkFailed(reason="too-few-samples", detail=f"{new} of {job.min_samples}")
    seen = _classes_seen(bundle, data).get("classes-seen")
    if seen is not None and seen < job.min_classes:
        return WorkFailed(reason="too-few-classes", detail=f"{seen} of {job.min_classes} in {len(data.labels)} samples")
    return None


def _classes_seen(bundle: Bundle, data: Data) -> dict[str, int]:
    if bundle.manifest.kind != "classification":
        return {}
    return {"classes-seen": len(np.unique(data.labels))}


def too_slow(place: Place, job: TrainingJob) -> WorkFailed:
    """Not one pass over the data was done in the time given."""
    detail = f"{place.epochs:.2f} of the first epoch's steps in the time given, {job.duration_s:g} s in all"
    return WorkFailed(reason="too-slow", detail=detail)
