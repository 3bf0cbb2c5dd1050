"""What one pass over the changes tells: cosines, their errors, and whether the changes are structured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.layers import layer_bounds, layer_cosines
from server_bridge.cohorts.plain_noise import central_kurtosis, is_plain_noise

JACKKNIFE_BLOCKS = 32
CHUNK_VALUES, LEAST_COLUMNS = 1 << 22, 1024  # 32 MB in float64
# Exchangeable coordinates have a structure of 0.7 to 1.2 and, if they are normal, a kurtosis of 3 +- 0.3 for 2,000
# parameters and more. Real updates have a structure of 4 to 8, or, where the layout hides it, a kurtosis of 1.2 to
# 2.8 (a few steps of Adam) or of 14 to 500 (gradient descent).
STRUCTURED = 1.6
NORMAL_KURTOSIS, KURTOSIS_MARGIN, KURTOSIS_ERRORS = 3.0, 0.4, 4.0
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Pairwise statistics of n changes.

    Attributes:
        cosines: (n, n) in [-1, 1]; a change of zero has cosine 0 with every other.
        root_cosines: (n, n) cosines of the signed square roots of the coordinates: a few large
            coordinates, which a few samples make, do not decide them.
        chance_errors: (n, n) standard deviation of the cosine if the signs of all coordinates were
            drawn anew: what two changes without anything in common show, whatever the scales of
            their coordinates.
        block_errors: (n, n) standard error of the cosine, by leaving out blocks of parameters in turn.
        lengths: (n,) L2 norms of the changes.
        kurtosis: (n,) of each change's coordinates.
        parameters: how many coordinates there are.
        plain_noise: whether nearest clients differ by normal noise of one scale, whatever the changes look like.
        layer_cosines: (n, n) cosines within each layer of some weight; none where the layers are not known, or
            where nothing says that coordinates of very unequal size hide a drift.
    """

    cosines: Matrix
    root_cosines: Matrix
    chance_errors: Matrix
    block_errors: Matrix
    lengths: NDArray[np.float64]
    kurtosis: NDArray[np.float64]
    parameters: int
    plain_noise: bool = False
    layer_cosines: tuple[Matrix, ...] = ()

    @property
    def structure(self) -> float:
        """Median ratio of the block error to what independent coordinates would give.

        About 1 if the coordinates are exchangeable, as in synthetic noise, isotropic or low-rank;
        3.6 to 8 for updates of real nets, whose layers respond each in its own way. 1 for fewer
        than two changes.
        """
        pairs = np.triu_indices(len(self.cosines), 1)
        expected = self.chance_errors[pairs] * (1.0 - np.square(self.cosines[pairs]))
        known = expected > 0
        return float(np.median(self.block_errors[pairs][known] / expected[known])) if known.any() else 1.0

    @property
    def structured(self) -> bool:
        """Whether the coordinates are those of a real net, and not exchangeable and normal."""
        return (self.structure > STRUCTURED or abs(self._excess) > self._margin) and not self.plain_noise

    @property
    def light_tailed(self) -> bool:
        """Whether coordinates are more alike in size than normal ones, as steps of Adam are: no noise looks so."""
        return self._excess < -self._margin

    @property
    def heavy_tailed(self) -> bool:
        """Whether few coordinates are far larger than normal ones would be, as descent makes them."""
        return self._excess > self._margin

    @property
    def _excess(self) -> float:
        return float(np.median(self.kurtosis)) - NORMAL_KURTOSIS

    @property
    def _margin(self) -> float:
        return max(KURTOSIS_MARGIN, KURTOSIS_ERRORS * float(np.sqrt(24.0 / self.parameters)))

    @property
    def similarities(self) -> Matrix:
        """The cosines that decide: of the roots where the changes are structured."""
        return self.root_cosines if self.structured else self.cosines

    def among(self, rows: NDArray[np.intp]) -> "Evidence":
        """The evidence on these rows."""
        square = np.ix_(rows, rows)
        return Evidence(
            self.cosines[square],
            self.root_cosines[square],
            self.chance_errors[square],
            self.block_errors[square],
            self.lengths[rows],
            self.kurtosis[rows],
            self.parameters,
            self.plain_noise,
            tuple(layer[square] for layer in self.layer_cosines),
        )


def measure(matrix: NDArray[Any], origins: Sequence[NDArray[Any]], tensors: Sequence[int] = ()) -> Evidence:
    """The evidence on the changes ``matrix - origins``.

    Args:
        matrix: (n, d) a row a client.
        origins: n vectors (d,), subtracted from the rows; may be shared objects.
        tensors: sizes of the layers that the columns are, in their order; empty if not known.

    Raises:
        ValueError: the sizes do not add up to d.

    Source: the sign-randomisation variance is sum x_k^2 y_k^2; grouped jackknife, Tukey 1958, in
        its infinitesimal form (Jaeckel 1972), which needs sums over the blocks and not the blocks.
    Cost: O(n^2 d) time, three passes where coordinates are of very unequal size and two or one elsewhere; 100 MB
        (from 4,096 rows on n 24 kB) and 8 n^2 values beside the input.
    """
    rows = len(matrix)
    squares, roots = np.zeros((rows, rows)), np.zeros((rows, rows))
    sums, powers = _BlockSums(rows), np.zeros((2, rows))
    for block in _blocks(matrix.shape[1]):
        gram = np.zeros((rows, rows))
        for part in _chunks(matrix, origins, block):
            gram += part @ part.T
            root = np.sqrt(np.abs(part))
            np.copysign(root, part, out=root)
            roots += root @ root.T
            squared = np.square(part)
            powers += part.sum(1), np.einsum("ij,ij->i", squared, part)
            squares += squared @ squared.T
        sums.add(gram)
    lengths = np.sqrt(np.diag(sums.gram))
    scale = np.outer(lengths, lengths)
    chance = np.divide(np.sqrt(squares), scale, out=np.zeros_like(scale), where=scale > 0)
    moments = np.stack([powers[0], np.diag(sums.gram), powers[1], np.diag(squares)])
    kurtosis = central_kurtosis(moments / max(matrix.shape[1], 1))
    evidence = Evidence(
        _cosines(sums.gram), _cosines(roots), chance, sums.errors(), lengths, kurtosis, max(matrix.shape[1], 1)
    )
    if not evidence.structured or evidence.light_tailed:
        return evidence
    blocks = list(_blocks(matrix.shape[1]))
    again = ((number, part) for number, block in enumerate(blocks) for part in _chunks(matrix, origins, block))
    if is_plain_noise(evidence.cosines, lengths, again):
        return replace(evidence, plain_noise=True)
    if not evidence.heavy_tailed:
        return evidence
    layers = (_chunks(matrix, origins, bounds) for bounds in layer_bounds(tensors, matrix.shape[1]))
    return replace(evidence, layer_cosines=layer_cosines(lengths, np.diag(roots), layers))


class _BlockSums:
    """What the jackknife error of each cosine needs of the blocks' inner products, whatever their number."""

    def __init__(self, rows: int) -> None:
        self.count = 0
        self.gram, self.squares, self.mixed, self.norms = (np.zeros((rows, rows)) for _ in range(4))

    def add(self, block: Matrix) -> None:
        """Take in the inner products within one block of parameters."""
        own = np.diag(block)
        self.count += 1
        self.gram += block
        self.squares += np.square(block)
        self.mixed += block * own[:, None]
        self.norms += np.outer(own, own)

    def errors(self) -> Matrix:
        """(n, n) standard errors: of the cosine c of x and y, block b has the influence
        x_b.y_b / |x||y| - c (|x_b|^2 / |x|^2 + |y_b|^2 / |y|^2) / 2; these sum to zero."""
        energy = np.diag(self.gram)
        inverse = np.divide(1.0, energy, out=np.zeros_like(energy), where=energy > 0)
        scale = np.sqrt(np.outer(inverse, inverse))
        cosines = self.gram * scale
        mixed = self.mixed * inverse[:, None]
        shares = np.diag(self.norms) * np.square(inverse)
        both = shares[:, None] + shares[None, :] + 2.0 * self.norms * np.square(scale)
        total = self.squares * np.square(scale) - cosines * scale * (mixed + mixed.T) + np.square(cosines) * both / 4.0
        spread = self.count / (self.count - 1) if self.count > 1 else 0.0
        return np.asarray(np.sqrt(spread * np.clip(total, 0.0, None)))


def _blocks(columns: int) -> Iterator[tuple[int, int]]:
    borders = np.linspace(0, columns, min(JACKKNIFE_BLOCKS, max(columns, 1)) + 1).astype(int)
    return pairwise(borders.tolist())


def _chunks(matrix: NDArray[Any], origins: Sequence[NDArray[Any]], block: tuple[int, int]) -> Iterator[Matrix]:
    width = max(LEAST_COLUMNS, CHUNK_VALUES // max(len(matrix), 1))
    for start in range(*block, width):
        stop = min(start + width, block[1])
        part = matrix[:, start:stop].astype(np.float64)
        for row, origin in enumerate(origins):
            part[row] -= origin[start:stop]
        yield part


def _cosines(gram: Matrix) -> Matrix:
    lengths = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    cosines = np.clip(gram * np.outer(inverse, inverse), -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines, np.float64)
