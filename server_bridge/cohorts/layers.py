"""Cosines of the changes layer by layer: for a drift that one layer shows and the noise of the others hides."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.cosine import cosine_matrix

Matrix = NDArray[np.float64]
# Fewer clients do not show how far a layer's cosines scatter.
LEAST_CLIENTS = 6
# What a layer must hold of the median client's energy, and how many coordinates, to be looked at.
LEAST_SHARE, LEAST_COORDINATES = 0.05, 100
# A coordinate counts up to this many times the size that it has in the median client: what a few samples of one
# client make is not large in the median client.
MOST_TYPICAL = 2.0
PIECE_VALUES = 1 << 18  # 2 MB in float64


def layer_bounds(tensors: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Where each tensor of enough coordinates lies among the columns.

    Raises:
        ValueError: the sizes do not add up to the columns.
    """
    ends = list(accumulate(tensors))
    if tensors and ends[-1] != columns:
        raise ValueError(f"tensors of {ends[-1]} parameters in all were told of, the matrix has {columns}")
    return [(end - size, end) for size, end in zip(tensors, ends, strict=True) if size >= LEAST_COORDINATES]


def layer_cosines(
    lengths: NDArray[np.float64], sums: NDArray[np.float64], layers: Iterable[Iterable[Matrix]]
) -> tuple[Matrix, ...]:
    """The cosines within each layer that holds a share of the changes; none of few clients.

    Args:
        lengths, sums: (n,) L2 norms of the changes, and sums of their coordinates' sizes, by which
            they are scaled here: a few samples hardly move these.
        layers: passes over the layers in turn, each in chunks of (n, width) coordinates; overwritten.

    Returns:
        For each such layer (n, n) in [-1, 1]; a change of zero has cosine 0 with every other.

    Source: winsorised at a multiple of a robust scale (Tukey 1962), here each coordinate's.
    Cost: O(n^2 d) time, 8 MB beside the chunk.
    """
    moved = sums > 0
    if np.count_nonzero(moved) < LEAST_CLIENTS:
        return ()
    inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=moved)
    whole = np.square(lengths * inverse)
    return tuple(_held(layers, inverse, whole, moved))


def _held(
    layers: Iterable[Iterable[Matrix]], inverse: NDArray[np.float64], whole: Matrix, moved: NDArray[np.bool_]
) -> Iterator[Matrix]:
    for layer in layers:
        gram, energy = np.zeros((len(inverse),) * 2), np.zeros(len(inverse))
        for cut in _pieces(layer):
            cut *= inverse[:, None]
            energy += np.square(cut).sum(1)
            most = MOST_TYPICAL * _median(np.abs(cut[moved]))
            np.clip(cut, -most, most, out=cut)
            gram += cut @ cut.T
        if np.median(energy[moved] / whole[moved]) >= LEAST_SHARE:
            yield cosine_matrix(gram)


def _pieces(chunks: Iterable[Matrix]) -> Iterator[Matrix]:
    """The chunks in parts that the copies made of them stay small beside; they may be overwritten."""
    for chunk in chunks:
        width = max(LEAST_COORDINATES, PIECE_VALUES // len(chunk))
        yield from (chunk[:, start : start + width] for start in range(0, chunk.shape[1], width))


def _median(sizes: Matrix) -> NDArray[np.float64]:
    """(width,) of the rows; a partition along them is several times faster than numpy's median."""
    middle = [(len(sizes) - 1) // 2, len(sizes) // 2]
    return np.asarray(np.partition(sizes, middle, axis=0)[middle].mean(0), np.float64)
