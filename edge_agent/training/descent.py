"""Minibatch descent over given rows, until the epochs are done or the time is."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.series import Steps
from edge_agent.training.schedule import Schedule


class Diverged(DataError):
    """A loss or a weight stopped being finite; ``problem`` says which."""


class Step(Protocol):
    """What a descent needs of a training step; ``model.training_step.TrainingStep`` is one."""

    def step(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any],
        *,
        learning_rate: float,
        scalars: Mapping[str, float] | None = None,
    ) -> float:
        """Train on one batch; returns its mean loss before the step."""

    def steps(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any],
        *,
        learning_rates: Sequence[float],
        scalars: Mapping[str, float] | None = None,
    ) -> Steps:
        """Train on k batches of one size in turn: features (k, n, ...), labels (k, n), a rate each."""

    def steps_at_once(self, batch_bytes: int) -> int:
        """How many batches :meth:`steps` takes at best, given the bytes of the features of one."""

    @property
    def reports(self) -> Mapping[str, float]:
        """What the last step said of itself, such as ``skipped``."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """A copy of every trainable tensor of the bundle."""


class Watch(Protocol):
    """Looks on after every step, or every few that are taken at once."""

    def stepped(self, place: "Place") -> bool:
        """Whether to go on."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a descent is.

    Attributes:
        steps: done so far.
        epochs: passes over the data done so far, a part of one counted by its steps.
        loss: mean over the last batch, before its step.
        skipped: steps that left everything as it was, by the guard in the graph.
    """

    steps: int = 0
    epochs: float = 0.0
    loss: float = float("nan")
    skipped: int = 0


class Unwatched:
    """Goes on to the end."""

    def stepped(self, place: Place) -> bool:
        """Always."""
        return True


def descend(
    step: Step,
    features: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    schedule: Schedule,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    watch: Watch,
    scalars: Mapping[str, float] | None = None,
) -> Place:
    """Train ``step`` over the data, in an order that the seed gives, or that of time where the schedule needs it.

    Args:
        features: (n, ...) by name, as the training graph takes them.
        labels: (n,).
        watch: asked after every step whether to go on; of a small net after at most `STEPS_AT_ONCE`.
        scalars: of the graph, besides the learning rate; its defaults hold for the others.

    Returns:
        Where it ended: before the last epoch's end if the watch said so.

    Raises:
        Diverged: a loss or trained weight is not finite.
        DataError: features or labels do not fit the graph (named).
    """
    rng = np.random.default_rng(seed)
    steps_an_epoch = sum(1 for _ in minibatches(len(labels), batch_size, np.random.default_rng(0)))
    sample_bytes = sum(array.nbytes for array in features.values()) // max(len(labels), 1)
    at_once = step.steps_at_once(sample_bytes * batch_size)
    place = Place()
    for rows in _passes(len(labels), schedule, epochs, batch_size, at_once, rng):
        batches = {name: array[rows] for name, array in features.items()}
        rates = [schedule.rate({name: array[row] for name, array in batches.items()}) for row in range(len(rows))]
        taken = _take(step, batches, labels[rows], rates, scalars)
        steps = place.steps + len(rows)
        place = Place(steps, steps / steps_an_epoch, float(taken.losses[-1]), place.skipped + taken.skipped)
        _refuse_not_finite(taken, place, steps_an_epoch)
        if not watch.stepped(place):
            break
    if not all(np.isfinite(tensor).all() for tensor in step.weights().values()):
        raise Diverged("the trained weights")
    return place


def _take(
    step: Step,
    batches: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    rates: Sequence[float],
    scalars: Mapping[str, float] | None,
) -> Steps:
    """One step, or several at once: batches (k, n, ...), labels (k, n)."""
    if len(rates) > 1:
        return step.steps(batches, labels, learning_rates=rates, scalars=scalars)
    batch = {name: array[0] for name, array in batches.items()}
    loss = step.step(batch, labels[0], learning_rate=rates[0], scalars=scalars)
    return Steps(np.array([loss]), round(step.reports.get("skipped", 0.0)))


def _refuse_not_finite(taken: Steps, place: Place, steps_an_epoch: int) -> None:
    if np.isfinite(taken.losses).all():
        return
    first = place.steps - len(taken.losses) + 1 + int(np.argmin(np.isfinite(taken.losses)))
    raise Diverged(f"the loss in epoch {math.ceil(first / steps_an_epoch)}")


def _passes(
    count: int, schedule: Schedule, epochs: int, batch_size: int, at_once: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Row numbers of the batches, (k, n): up to so many of one size together, of one epoch."""
    for _ in range(epochs):
        schedule.begin_epoch()
        batches = list(minibatches(count, batch_size, None if schedule.in_time_order else rng))
        whole = [rows for rows in batches if len(rows) == len(batches[0])]
        for start in range(0, len(whole), at_once):
            yield np.stack(whole[start : start + at_once])
        for rows in batches[len(whole) :]:
            yield rows[None]


def minibatches(count: int, batch_size: int, rng: np.random.Generator | None) -> Iterator[NDArray[np.int64]]:
    """Row numbers of one epoch's batches, in random order; as they are where there is no ``rng``.

    The last batch may be smaller; one of a single row is left out unless it is the only one:
    a step on one sample is mostly noise, and batch statistics are undefined.
    """
    order = np.arange(count) if rng is None else rng.permutation(count)
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        if len(rows) > 1 or start == 0 or batch_size == 1:
            yield rows
