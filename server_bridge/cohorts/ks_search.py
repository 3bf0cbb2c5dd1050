"""Where two distribution functions are furthest apart: exact, and nowhere looked at closer than needed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.key_cells import Cells, Counts, top_cells
from server_bridge.cohorts.ordered_keys import Keys

SORTED_SHARE = 0.125  # up to this share of a sample is sorted without being divided first
STRIDES = (64, 16, 4, 1)  # order statistics between two that are looked up
CHUNK = 1 << 13  # looked up at a time


@dataclass(slots=True)
class Excess:
    """The largest excess found so far of each distribution function over the other, times both sizes."""

    client: int = 0
    reference: int = 0

    def take(self, client: NDArray[np.int64], reference: NDArray[np.int64]) -> None:
        """Excesses that are attained."""
        self.client = max(self.client, int(client.max(initial=0)))
        self.reference = max(self.reference, int(reference.max(initial=0)))

    def beaten(self, client: NDArray[np.int64], reference: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these bounds leave room for another result."""
        best = max(self.client, self.reference)
        return ((client >= best) & (client > self.client)) | (reference > best)


class KeySearch:
    """A reference's keys, to which any number of clients are compared.

    Args:
        keys: (m,) ascending.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._top = top_cells(keys.dtype)
        self._top_after = np.searchsorted(keys, self._top.last, "right")

    def excess(self, blocks: Callable[[], Iterable[Keys]], size: int) -> Excess:
        """The largest excess of each distribution function.

        Args:
            blocks: gives the client's keys, any order, as often as it is asked.
            size: how many they are.

        Cost: O(n) to count, twice or three times, and what remains open is sorted: next to
        nothing for samples that differ, all of it for samples that hardly do. Memory: about half
        of the n keys, or those of one cell.
        """
        excess, scale = Excess(), (self._keys.size, size)
        level = _Level(self._top, self._top.count(blocks()), 0, 0, self._top_after)
        open_cells = level.bound(excess, scale)
        while (bits := _useful_bits(level, open_cells, excess, scale)) > 0:
            chosen = np.flatnonzero(open_cells)
            cells = level.cells.divide(chosen, bits)
            before = level.client_after[chosen] - level.counts[chosen], level.reference_before[chosen]
            level = _Level(cells, cells.count(blocks()), *before, np.searchsorted(self._keys, cells.last, "right"))
            open_cells = level.bound(excess, scale)
        for part in _halves(level.counts, open_cells, size):
            self._compare(_Gathered.of(level, part, blocks()), excess, scale)
        return excess

    def _compare(self, gathered: "_Gathered", excess: Excess, scale: tuple[int, int]) -> None:
        """Look up every 64th of the gathered keys, then every 16th, 4th and each where there is room."""
        self._closer(gathered, np.zeros(1, np.intp), (gathered.keys.size, *STRIDES), excess, scale)

    def _closer(
        self,
        gathered: "_Gathered",
        begins: NDArray[np.intp],
        strides: Sequence[int],
        excess: Excess,
        scale: tuple[int, int],
    ) -> None:
        """From stretches of the first stride to those of the next, a few of them down to the last at a time."""
        if len(strides) == 1:
            return
        steps = np.arange(0, strides[0] + strides[1], strides[1])
        rows = max(1, CHUNK // steps.size)
        for start in range(0, begins.size, rows):
            places = np.minimum(begins[start : start + rows, None] + steps, gathered.keys.size - 1)
            found = self._look_up(gathered, places, excess, scale)
            self._closer(gathered, found, strides[1:], excess, scale)

    def _look_up(
        self, gathered: "_Gathered", places: NDArray[np.intp], excess: Excess, scale: tuple[int, int]
    ) -> NDArray[np.intp]:
        """Take what places (r, s), ascending in a row, attain; those behind which there is room for more."""
        m, n = scale
        found, rank = gathered.keys[places], gathered.ranks(places)
        right = np.searchsorted(self._keys, found, "right")
        left = right.copy()
        held = self._keys[right - 1] == found  # -1 is the largest key: held only if right is not 0
        left[held] = np.searchsorted(self._keys, found[held], "left")
        excess.take((rank + 1) * m - right * n, left * n - rank * m)
        room = excess.beaten(rank[:, 1:] * m - right[:, :-1] * n, left[:, 1:] * n - rank[:, :-1] * m)
        return places[:, :-1][room & (places[:, 1:] - places[:, :-1] > 1)]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The ascending keys of the open cells, and their places among all of the client's."""

    keys: Keys
    begins: Counts
    shifts: Counts

    @classmethod
    def of(cls, level: "_Level", open_cells: NDArray[np.bool_], blocks: Iterable[Keys]) -> "_Gathered":
        counts = level.counts[open_cells]
        begins = np.cumsum(counts) - counts
        keys = level.cells.gather(blocks, open_cells, int(counts.sum()))
        return cls(keys, begins, level.client_after[open_cells] - counts - begins)

    def ranks(self, places: NDArray[np.intp]) -> Counts:
        cells = np.searchsorted(self.begins, places, "right") - 1
        return places + self.shifts[cells]


class _Level:
    """Cells with the counts of both samples in and before them."""

    def __init__(
        self,
        cells: Cells,
        counts: Counts,
        client_before: Counts | int,
        reference_before: Counts | int,
        reference_after: NDArray[np.intp],
    ) -> None:
        families = 1 if cells.parent is None else cells.last.size >> cells.bits
        after = reference_after.reshape(families, -1)
        first = np.broadcast_to(np.asarray(reference_before), (families,))[:, None]
        self.cells = cells
        self.counts = counts
        self.reference_after = reference_after
        self.reference_before = np.concatenate([first, after[:, :-1]], axis=1).reshape(-1)
        inside = counts.reshape(families, -1).cumsum(axis=1)
        self.client_after = (inside + np.reshape(client_before, (-1, 1))).reshape(-1)

    def bound(self, excess: Excess, scale: tuple[int, int]) -> NDArray[np.bool_]:
        """Take what the ends of cells attain; which cells may hold more."""
        m, n = scale
        end = self.client_after * m - self.reference_after * n
        excess.take(end, -end)
        inner = (self.counts > 0) & (self.reference_after > self.reference_before)
        if self.cells.shift == 0:
            return np.zeros_like(inner)
        client_first = self.client_after * m - self.reference_before * n
        reference_first = self.reference_after * n - (self.client_after - self.counts) * m
        return inner & excess.beaten(client_first, reference_first)


def _halves(counts: Counts, open_cells: NDArray[np.bool_], size: int) -> list[NDArray[np.bool_]]:
    """The open cells in parts that hold about half of all keys at most: so much is in memory at a time."""
    held = np.cumsum(np.where(open_cells, counts, 0))
    if held[-1] == 0:
        return []
    part = 2 * (held - 1) // size
    return [open_cells & (part == number) for number in np.unique(part[open_cells])]


def _useful_bits(level: _Level, open_cells: NDArray[np.bool_], excess: Excess, scale: tuple[int, int]) -> int:
    """Into how many (log2) the open cells are divided; 0 where sorting what they hold is no dearer.

    Dividing pays where much is open, and where an average child holds no more than half of what
    was found already; an eighth is aimed at.
    """
    m, n = scale
    left, parents = int(level.counts[open_cells].sum()), int(open_cells.sum())
    if left <= n * SORTED_SHARE:
        return 0
    best = max(excess.client, excess.reference)
    wanted = 8 * left * m // (parents * max(best, 1))
    bits = min(level.cells.shift, wanted.bit_length(), (max(n, m) // (16 * parents)).bit_length() - 1)
    return bits if bits > 0 and 2 * (left * m // (parents << bits)) <= best else 0
