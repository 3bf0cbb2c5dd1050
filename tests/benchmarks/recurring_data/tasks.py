"""The data sets: what a client sees at a time step under a concept."""

import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.recurring_data.patterns import CLIENTS, STEPS, Pattern

Purpose = Literal["train", "held"]
Draw = Callable[[np.random.Generator, NDArray[np.intp], int, Purpose], list[Samples]]
"""(rng, concept of each client, samples a client, purpose) to samples of each client."""


@dataclass(frozen=True, slots=True)
class Task:
    """A data set with its net and its local training.

    Attributes:
        concepts: how many there are.
        widths: of the dense net.
        samples: a client's training samples a time step.
        held: a client's test samples a time step, which nobody trains on.
        learning_rate: Adam's.
        gamma: the rise of a client's loss that is drift, in every arm.
    """

    name: str
    concepts: int
    widths: Sequence[int]
    samples: int
    held: int
    learning_rate: float
    gamma: float
    draw: Draw


@dataclass(frozen=True, slots=True)
class Stream:
    """All data of one run: ``train[t][c]`` for t in 0-9, ``held[t][c]`` for t in 0-10."""

    train: Sequence[Sequence[Samples]]
    held: Sequence[Sequence[Samples]]


def make_stream(task: Task, pattern: Pattern, seed: int) -> Stream:
    """The same data for every arm: they depend on task, pattern and seed only."""
    rng = np.random.default_rng([seed, *pattern.name.encode(), *task.name.encode()])
    train = [task.draw(rng, pattern.concepts[now], task.samples, "train") for now in range(STEPS)]
    held = [task.draw(rng, pattern.concepts[now], task.held, "held") for now in range(STEPS + 1)]
    return Stream(train, held)


def make_tasks(data: Path) -> Mapping[str, Task]:
    """The data sets by name; the files of SEA-4 and MNIST are read when they are drawn from."""
    mnist_net = (28 * 28, 32, 10)
    tasks = (
        Task("SINE-2", 2, (2, 20, 2), 500, 300, 0.02, 0.5, _drawn(sine)),
        Task("CIRCLE-2", 2, (2, 20, 2), 500, 300, 0.02, 0.5, _drawn(circle)),
        Task("SEA-4", 4, (3, 20, 2), 1000, 300, 0.02, 0.04, _pooled(lambda: read_sea(data))),
        Task("MNIST-2", 2, mnist_net, 200, 200, 0.003, 1.0, _pooled(lambda: read_mnist(data, 2))),
        Task("MNIST-4", 4, mnist_net, 200, 200, 0.003, 1.0, _pooled(lambda: read_mnist(data, 4))),
    )
    return MappingProxyType({task.name: task for task in tasks})


def sine(rng: np.random.Generator, concept: int, count: int) -> Samples:
    """Points of the unit square; concept 0 labels those below sin(x1) 1, concept 1 inverts.

    Source: Jothimurugesan et al. 2023, SINE-2 (after Gama et al. 2004).
    """
    points = rng.random((count, 2)).astype(np.float32)
    below = points[:, 1] <= np.sin(points[:, 0])
    return Samples(_centred(points), (below ^ bool(concept)).astype(np.int64))


CIRCLES = ((0.2, 0.5, 0.15), (0.6, 0.5, 0.25))


def circle(rng: np.random.Generator, concept: int, count: int) -> Samples:
    """Points of the unit square, 1 outside a circle; the concepts have circles of their own.

    Source: Jothimurugesan et al. 2023, CIRCLE-2.
    """
    points = rng.random((count, 2)).astype(np.float32)
    x, y, radius = CIRCLES[concept]
    outside = np.hypot(points[:, 0] - x, points[:, 1] - y) > radius
    return Samples(_centred(points), outside.astype(np.int64))


SWAPS = ((), ((0, 1), (2, 3)), ((4, 5), (6, 7)), ((8, 9), (1, 2)))


def swapped(labels: NDArray[np.int64], concept: int) -> NDArray[np.int64]:
    """Digits under a concept: two pairs of labels are swapped, none under concept 0."""
    names = np.arange(10)
    for left, right in SWAPS[concept]:
        names[[left, right]] = names[[right, left]]
    return names[labels]


@cache
def read_sea(data: Path) -> Sequence[Samples]:
    """SEA's four concepts, features in -1..1."""
    pools = []
    for number in range(1, 5):
        with gzip.open(data / "feddrift" / f"sea_concept{number}.csv.gz", "rt", encoding="utf-8") as lines:
            rows = np.array([[float(value) for value in row] for row in list(csv.reader(lines))[1:]])
        pools.append(Samples(_centred((rows[:, :3] / 10).astype(np.float32)), rows[:, 3].astype(np.int64)))
    return pools


@cache
def read_mnist(data: Path, concepts: int) -> Sequence[Samples]:
    """MNIST's test images under each concept."""
    pixels = np.frombuffer(gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    images = (pixels.reshape(len(labels), -1) / np.float32(255)).astype(np.float32)
    return [Samples(images, swapped(labels.astype(np.int64), concept)) for concept in range(concepts)]


def _centred(unit: NDArray[np.float32]) -> NDArray[np.float32]:
    return (2 * unit - 1).astype(np.float32)


def _drawn(one: Callable[[np.random.Generator, int, int], Samples]) -> Draw:
    """Fresh samples at every draw."""
    return lambda rng, concepts, count, purpose: [one(rng, int(concept), count) for concept in concepts]


HELD_SHARE = 0.25


def _pooled(read: Callable[[], Sequence[Samples]]) -> Draw:
    """Rows of a pool of real samples; clients of one time step never share one, and held rows are nobody's."""

    def draw(rng: np.random.Generator, concepts: NDArray[np.intp], count: int, purpose: Purpose) -> list[Samples]:
        pools = read()
        size = len(pools[0].labels)
        held = int(size * HELD_SHARE)
        rows = np.arange(size - held, size) if purpose == "held" else np.arange(size - held)
        chosen = rng.permutation(rows)[: count * CLIENTS].reshape(CLIENTS, count)
        return [pools[concept].take(mine) for concept, mine in zip(concepts, chosen, strict=True)]

    return draw
