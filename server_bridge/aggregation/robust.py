"""Means that a minority of hostile updates cannot move far: trimmed mean, median, Krum."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from server_bridge.aggregation.means import Tensors, check_alike, like, weighted_mean

RuleName = Literal["mean", "trimmed-mean", "median", "krum"]
HOSTILE_SHARE = 0.2
BLOCK_VALUES = 2**18  # 2 MiB of float64: all clients' values of one block together

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the models of one cohort become one.

    The robust rules count every client alike: an example count is a claim that costs a hostile
    client nothing.

    Attributes:
        rule: ``mean`` (by example counts), ``trimmed-mean``, ``median`` or ``krum``.
        hostile_share: the share of a cohort's clients that trimmed mean and Krum withstand, in
            [0, 0.5); a cohort of two can withstand nobody.

    Raises:
        ValueError: an unknown rule, or a share out of range.
    """

    rule: RuleName = "mean"
    hostile_share: float = HOSTILE_SHARE

    def __post_init__(self) -> None:
        if self.rule not in ("mean", "trimmed-mean", "median", "krum"):
            raise ValueError(f"aggregation {self.rule!r} is none of mean, trimmed-mean, median, krum")
        if not 0 <= self.hostile_share < 0.5:
            raise ValueError(f"hostile_share must lie in [0, 0.5), not {self.hostile_share}")

    def combine(self, models: Sequence[Tensors], examples: Sequence[float]) -> dict[str, NDArray[Any]]:
        """One model from at least one; see the functions of this module.

        Args:
            models: of the same names and shapes, finite.
            examples: how many each was trained on; only ``mean`` looks at them.

        Raises:
            ValueError: no model; names, shapes or lengths differ; counts unusable.
        """
        if self.rule == "mean" or len(models) < 2:
            return weighted_mean(models, examples)
        if self.rule == "median":
            return coordinate_median(models)
        hostile = hostile_count(len(models), self.hostile_share)
        return trimmed_mean(models, hostile) if self.rule == "trimmed-mean" else krum_mean(models, hostile)


def hostile_count(clients: int, share: float) -> int:
    """How many of so many clients may be hostile: the share, rounded up, but always a minority."""
    return min(math.ceil(share * clients - 1e-9), (clients - 1) // 2)


def trimmed_mean(models: Sequence[Tensors], cut: int) -> dict[str, NDArray[Any]]:
    """The mean of each coordinate without its ``cut`` smallest and ``cut`` largest values, in float64.

    Args:
        models: at least ``2 cut + 1``, of the same names and shapes, finite.
        cut: 0 gives the plain mean.

    Returns:
        Named tensors in the dtypes of the first model.

    Raises:
        ValueError: too few models; names or shapes differ.

    Source: Yin et al. 2018, Definition 2 (they cut a share beta, we a count).
    Cost: O(n log n) a coordinate; memory of one block beside the result.
    """
    if cut < 0 or 2 * cut >= len(models):
        raise ValueError(f"{cut} of {len(models)} models cannot be cut at either end")

    def middle(block: Matrix) -> Matrix:
        block.sort(axis=0)
        return np.asarray(block[cut : len(block) - cut].mean(axis=0))

    return _by_coordinate(models, middle)


def coordinate_median(models: Sequence[Tensors]) -> dict[str, NDArray[Any]]:
    """The median of each coordinate, in float64; between two middle values their mean.

    Args:
        models: at least one, of the same names and shapes, finite.

    Raises:
        ValueError: no model; names or shapes differ.

    Source: Yin et al. 2018, Definition 1.
    Cost: O(n) a coordinate; memory of one block beside the result.
    """
    return _by_coordinate(models, lambda block: np.asarray(np.median(block, axis=0, overwrite_input=True)))


def krum_mean(models: Sequence[Tensors], hostile: int) -> dict[str, NDArray[Any]]:
    """The plain mean of the ``n - hostile`` models that lie closest to their neighbours (multi-Krum).

    Args:
        models: at least one, of the same names and shapes, finite.
        hostile: how many may be hostile.

    Raises:
        ValueError: no model; names or shapes differ; ``hostile`` not below the number of models.

    Source: Blanchard et al. 2017, section 4 (multi-Krum with m = n - f).
    Cost: O(n^2 d) time, O(n^2) memory and one block.
    """
    if not 0 <= hostile < max(len(models), 1):
        raise ValueError(f"{hostile} of {len(models)} models cannot be hostile")
    scores = krum_scores(squared_distances(models), hostile)
    kept = np.sort(np.argsort(scores, kind="stable")[: len(models) - hostile])
    return weighted_mean([models[i] for i in kept], [1.0] * len(kept))


def krum_scores(distances: Matrix, hostile: int) -> Matrix:
    """Each model's sum of squared distances to its ``n - hostile - 2`` nearest others, at least one.

    Args:
        distances: (n, n) squared distances.
        hostile: f.

    Returns:
        (n,) scores; the smallest is Krum's choice.

    Source: Blanchard et al. 2017, equation of section 4; below f + 3 models we keep one neighbour,
        where the paper has none.
    """
    others = np.array(distances, np.float64)
    np.fill_diagonal(others, np.inf)
    neighbours = min(max(len(others) - hostile - 2, 1), len(others) - 1)
    return np.asarray(np.sort(others, axis=1)[:, :neighbours].sum(axis=1))


def squared_distances(models: Sequence[Tensors]) -> Matrix:
    """Squared Euclidean distances between models, (n, n), float64.

    Coordinates are centred on their median first: the changes of a round are 1e-2 of the weights
    and less, and |a|^2 + |b|^2 - 2ab would lose them (flwr's MultiKrum does). The median and not
    the mean, so that one huge model does not move the centre away from all others.

    Args:
        models: at least one, of the same names and shapes, finite.

    Raises:
        ValueError: no model; names or shapes differ.
    """
    check_alike(models)
    gram = np.zeros((len(models), len(models)))
    for name in models[0]:
        for _, block in _blocks([model[name] for model in models]):
            block -= np.median(block, axis=0)
            gram += block @ block.T
    squares = np.diag(gram)
    distances = np.maximum(squares[:, None] + squares[None, :] - gram - gram.T, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _by_coordinate(models: Sequence[Tensors], reduce: Callable[[Matrix], Matrix]) -> dict[str, NDArray[Any]]:
    check_alike(models)
    reduced: dict[str, NDArray[Any]] = {}
    for name, first in models[0].items():
        flat = np.empty(first.size)
        for place, block in _blocks([model[name] for model in models]):
            flat[place] = reduce(block)
        reduced[name] = like(first, flat.reshape(first.shape))
    return reduced


def _blocks(tensors: Sequence[NDArray[Any]]) -> Iterator[tuple[slice, Matrix]]:
    """Stretches of coordinates, each with all clients' values as a fresh (n, width) matrix."""
    rows = [np.asarray(tensor).reshape(-1) for tensor in tensors]
    width = max(BLOCK_VALUES // len(rows), 1)
    for start in range(0, rows[0].size, width):
        place = slice(start, min(start + width, rows[0].size))
        block = np.empty((len(rows), place.stop - place.start))
        for target, row in zip(block, rows, strict=True):
            target[:] = row[place]
        yield place, block
