"""Minibatch descent over given rows, until the epochs are done or the time is."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
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

    @property
    def reports(self) -> Mapping[str, float]:
        """What the last step said of itself, such as ``skipped``."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """A copy of every trainable tensor of the bundle."""


class Watch(Protocol):
    """Looks on after every step."""

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
        watch: asked after every step whether to go on.
        scalars: of the graph, besides the learning rate; its defaults hold for the others.

    Returns:
        Where it ended: before the last epoch's end if the watch said so.

    Raises:
        Diverged: a loss or trained weight is not finite.
        DataError: features or labels do not fit the graph (named).
    """
    rng = np.random.default_rng(seed)
    steps_an_epoch = sum(1 for _ in minibatches(len(labels), batch_size, np.random.default_rng(0)))
    place = Place()
    for rows in _passes(len(labels), schedule, epochs, batch_size, rng):
        batch = {name: array[rows] for name, array in features.items()}
        loss = step.step(batch, labels[rows], learning_rate=schedule.rate(batch), scalars=scalars)
        skipped = place.skipped + round(step.reports.get("skipped", 0.0))
        place = Place(place.steps + 1, (place.steps + 1) / steps_an_epoch, loss, skipped)
        if not math.isfinite(loss):
            raise Diverged(f"the loss in epoch {math.ceil(place.epochs)}")
        if not watch.stepped(place):
            break
    if not all(np.isfinite(tensor).all() for tensor in step.weights().values()):
        raise Diverged("the trained weights")
    return place


def _passes(
    count: int, schedule: Schedule, epochs: int, batch_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    for _ in range(epochs):
        schedule.begin_epoch()
        yield from minibatches(count, batch_size, None if schedule.in_time_order else rng)


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
