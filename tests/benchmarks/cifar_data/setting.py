"""What an experiment is: who has which images, and whose labels turn when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.gradients.batch_statistics import Statistics
from tests.benchmarks.cifar_data.images import CLASSES
from tests.benchmarks.cifar_data.net import Start

CLIENTS, DRIFTING = 10, 8
EVENTS = (3, 5, 7, 9)
TRAIN, TEST, ROUNDS = 4_000, 1_000, 10
QUICK_TRAIN, QUICK_TEST, QUICK_ROUNDS = 1_500, 200, 6
FAMILIES = ("A", "B", "stationary")
SWAPS = {"A": ((0, 1), (2, 3), (4, 5), (6, 7)), "B": ((9, 8), (7, 6), (5, 4), (3, 2))}
DOUBLE_SWAPS = {  # the first two at the first event, two more at each
    "A": ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (0, 2), (1, 3), (4, 6)),
    "B": ((5, 6), (7, 8), (9, 0), (1, 2), (3, 4), (5, 7), (6, 8), (9, 1)),
}
Shift = Literal["opposite", "same direction", "swaps", "double swaps"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment.

    Attributes:
        train, test: images a client, at most.
        shift: how labels change at each event: by one class more up (A) and down (B); one (A) and two (B)
            more up; one more pair of classes swapped, others in A than in B; two more pairs.
        dirichlet: concentration of the classes' shares; ``None`` for IID clients.
        participation: share of the clients in a round.
        statistics: BatchNorm's in training: those of the start, or each batch's own, as the published experiment has.
        start: how the first weights are drawn.
    """

    name: str
    train: int = TRAIN
    test: int = TEST
    rounds: int = ROUNDS
    shift: Shift = "opposite"
    dirichlet: float | None = None
    participation: float = 1.0
    statistics: Statistics = "frozen"
    start: Start = "normal"


# 1,500 training images keep the conclusion, 500 test images too; what is harder is measured on these.
HARDER_TEST = 500
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            Setting("published"),
            Setting("batch statistics", statistics="batch"),
            Setting("batch statistics, uniform start", statistics="batch", start="uniform"),
            Setting("quick", QUICK_TRAIN, QUICK_TEST, QUICK_ROUNDS),
            Setting("500 images", 500, HARDER_TEST),
            Setting("60 % participation", QUICK_TRAIN, HARDER_TEST, participation=0.6),
            Setting("same direction", QUICK_TRAIN, HARDER_TEST, shift="same direction"),
            Setting("label swaps", QUICK_TRAIN, HARDER_TEST, shift="swaps"),
            Setting("two label swaps", QUICK_TRAIN, HARDER_TEST, shift="double swaps"),
            Setting("Dirichlet 0.5", QUICK_TRAIN, HARDER_TEST, dirichlet=0.5),
        )
    }
)
HARDER = tuple(SETTINGS)[4:]


def family(client: int) -> str:
    """Even partitions turn one way, odd ones the other, the last two never."""
    if client >= DRIFTING:
        return "stationary"
    return FAMILIES[client % 2]


def concept(setting: Setting, client: int, number: int) -> NDArray[np.int64]:
    """(10,) the label of each class in round ``number``."""
    classes, mine = np.arange(CLASSES), family(client)
    events = sum(number >= event for event in EVENTS)
    if mine == "stationary" or events == 0:
        return classes
    if setting.shift in ("swaps", "double swaps"):
        pairs = SWAPS[mine][:events] if setting.shift == "swaps" else DOUBLE_SWAPS[mine][: 2 * events]
        for one, other in pairs:
            classes[[one, other]] = classes[[other, one]]
        return classes
    step = {"A": 1, "B": -1 if setting.shift == "opposite" else 2}[mine]
    return (classes + step * events) % CLASSES


def partition(
    setting: Setting, labels: NDArray[np.int64], seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """The rows of each client's train and test images; no image is used twice."""
    rng = np.random.default_rng([seed, 0xDA7A])
    shares: Sequence[NDArray[np.intp]]
    if setting.dirichlet is None:
        shares = np.array_split(rng.permutation(len(labels)), CLIENTS)
    else:
        shares = _skewed(setting.dirichlet, labels, rng)
    parts = []
    for rows in shares:
        train = len(rows) * TRAIN // (TRAIN + TEST)
        parts.append((rows[:train][: setting.train], rows[train:][: setting.test]))
    return parts


def _skewed(concentration: float, labels: NDArray[np.int64], rng: np.random.Generator) -> Sequence[NDArray[np.intp]]:
    """Each class's images shared out by a draw from a Dirichlet distribution."""
    mine: list[list[NDArray[np.intp]]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet([concentration] * CLIENTS))[:-1] * len(rows)
        for client, share in enumerate(np.split(rows, cuts.astype(np.intp))):
            mine[client].append(share)
    return [rng.permutation(np.concatenate(shares)) for shares in mine]
