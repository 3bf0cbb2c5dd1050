"""One local round: minibatch descent from given base weights on given samples."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.evaluation import evaluate
from edge_agent.training.job import TrainingJob, WorkFailed
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.wire.tensors import Weights


@dataclass(frozen=True, slots=True)
class LocalRound:
    """What a round gives.

    Attributes:
        delta: trained minus base, every trainable tensor of the bundle.
        metrics: ``num-examples``; ``clma-loss``, the mean loss of the base weights on the training
            samples (L_c of Algorithm 2); ``loss-after``, that of the trained ones;
            ``update-norm``, the L2 norm of the delta; ``train-duration-s``; where the job asks for
            it and the data allow, ``clma-split-half``.
    """

    delta: Weights
    metrics: dict[str, int | float]


def run_local_round(
    bundle: Bundle, base: Weights, features: Mapping[str, NDArray[Any]], labels: NDArray[Any], job: TrainingJob
) -> LocalRound | WorkFailed:
    """Train from the base weights.

    Args:
        base: the weights that the bridge sent.
        features: (n, ...) by input name.
        labels: (n,).
        job: graph, learning rate, epochs, batch size, seed.

    Returns:
        The round, or why there is none: too few samples, or a loss or weight that is not finite.

    Raises:
        DataError: base weights, features or labels do not fit the bundle (named).

    Source: N L et al., CODS-COMAD 2024, Algorithm 2 for L_c; the drift flag itself is set by the
        monitor and the bridge, not here.
    """
    if len(labels) < max(job.min_samples, 1):
        return WorkFailed(reason="too-few-samples", detail=f"{len(labels)} of {job.min_samples}")
    started_s = time.monotonic()
    threads = job.limits.threads
    before = evaluate(InferenceModel(bundle, base, threads=threads), bundle.manifest, features, labels)
    if not math.isfinite(before.loss):
        return WorkFailed(reason="non-finite", detail="the loss of the base weights on the training samples")
    step = TrainingStep(bundle, job.training_graph, base, threads=threads)
    failure = _descend(step, features, labels, job)
    if failure is not None:
        return failure
    trained = step.weights()
    after = evaluate(InferenceModel(bundle, trained, threads=threads), bundle.manifest, features, labels)
    delta = {name: trained[name] - base[name] for name in trained}
    norm = update_norm(delta)
    if not math.isfinite(norm) or not math.isfinite(after.loss):
        return WorkFailed(reason="non-finite", detail="the loss of the trained weights")
    agreement = split_half_cosine(bundle, base, features, labels, job) if job.split_half else None
    metrics: dict[str, int | float] = {
        "num-examples": len(labels),
        "clma-loss": before.loss,
        "loss-after": after.loss,
        "update-norm": norm,
        "train-duration-s": time.monotonic() - started_s,
    }
    if agreement is not None:
        metrics[SPLIT_HALF_KEY] = agreement
    return LocalRound(delta, metrics)


def split_half_cosine(
    bundle: Bundle, base: Weights, features: Mapping[str, NDArray[Any]], labels: NDArray[Any], job: TrainingJob
) -> float | None:
    """How far two halves of the data agree on the update: the cosine of the updates that they give.

    Args: as :func:`run_local_round`.

    Returns:
        In [-1, 1]; ``None`` for fewer than four samples, a half that diverges or one that changes nothing.

    Cost: as much time as the round itself; each half is trained as the whole was.
    """
    updates = []
    for rows in halves(labels, job.seed):
        step = TrainingStep(bundle, job.training_graph, base, threads=job.limits.threads)
        if _descend(step, {name: array[rows] for name, array in features.items()}, labels[rows], job) is not None:
            return None
        updates.append({name: tensor - base[name] for name, tensor in step.weights().items()})
    return cosine(updates[0], updates[1]) if updates else None


def minibatches(count: int, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Row numbers of one epoch's batches, in random order.

    The last batch may be smaller; one of a single row is left out unless it is the only one:
    a step on one sample is mostly noise, and batch statistics are undefined.
    """
    order = rng.permutation(count)
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        if len(rows) > 1 or start == 0 or batch_size == 1:
            yield rows


def update_norm(delta: Weights) -> float:
    """L2 norm over all tensors, summed in float64."""
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in delta.values()))


def _descend(
    step: TrainingStep, features: Mapping[str, NDArray[Any]], labels: NDArray[Any], job: TrainingJob
) -> WorkFailed | None:
    rng = np.random.default_rng(job.seed)
    for epoch in range(job.epochs):
        for rows in minibatches(len(labels), job.batch_size, rng):
            batch = {name: array[rows] for name, array in features.items()}
            loss = step.step(batch, labels[rows], learning_rate=job.learning_rate)
            if not math.isfinite(loss):
                return WorkFailed(reason="non-finite", detail=f"the loss in epoch {epoch + 1}")
    if not all(np.isfinite(tensor).all() for tensor in step.weights().values()):
        return WorkFailed(reason="non-finite", detail="the trained weights")
    return None
