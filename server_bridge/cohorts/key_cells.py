"""Ranges of keys that are counted, and divided further where more must be known."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.ordered_keys import Keys

Counts = NDArray[np.int64]
TOP_BITS = 14  # sign, exponent and, in float32, 5 bits of the fraction: 128 kB of counts


@dataclass(frozen=True, slots=True)
class Cells:
    """Disjoint ranges of keys in ascending order, all 2^shift wide.

    Attributes:
        shift: how many low bits of a key a cell leaves open.
        last: (k,) the last key of each cell.
        parent: the cells that these divide; ``None`` for the top bits.
        rank: (parent's slots,) where a parent's children begin, over 2^bits; k there for none.
        bits: how many bits tell the children of a parent apart.
    """

    shift: int
    last: Keys
    parent: "Cells | None" = None
    rank: NDArray[np.int32] | None = None
    bits: int = TOP_BITS

    @property
    def slots(self) -> int:
        """One more than the largest index: the cells, and what a key in none is counted under."""
        return self.last.size + (0 if self.parent is None else 1 << self.bits)

    def index(self, keys: Keys) -> NDArray[Any]:
        """The cell (n,) of each key; at least k for a key in none."""
        if self.parent is None or self.rank is None:
            top: NDArray[Any] = keys >> self.shift
            top += 1 << (TOP_BITS - 1)
            return top
        children = self.rank.take(self.parent.index(keys))
        children <<= self.bits
        children |= ((keys >> self.shift) & ((1 << self.bits) - 1)).astype(np.int32)
        return children

    def count(self, blocks: Iterable[Keys]) -> Counts:
        """How many keys lie in each cell (k,)."""
        counts = np.zeros(self.slots, np.int64)
        for keys in blocks:
            counts += np.bincount(self.index(keys), minlength=self.slots)
        return counts[: self.last.size]

    def divide(self, chosen: NDArray[np.intp], bits: int) -> "Cells":
        """The children of some cells, 2^bits each."""
        rank = np.full(self.slots, chosen.size, np.int32)
        rank[chosen] = np.arange(chosen.size)
        shift = self.shift - bits
        back = np.arange((1 << bits) - 1, -1, -1, dtype=self.last.dtype) << shift
        return Cells(shift, (self.last[chosen, None] - back).reshape(-1), self, rank, bits)

    def gather(self, blocks: Iterable[Keys], wanted: NDArray[np.bool_], size: int) -> Keys:
        """The ``size`` keys that lie in the wanted cells (k,), ascending."""
        taken = np.zeros(self.slots, np.bool_)
        taken[: wanted.size] = wanted
        gathered, end = np.empty(size, self.last.dtype), 0
        for keys in blocks:
            chosen = keys[taken.take(self.index(keys))]
            gathered[end : end + chosen.size] = chosen
            end += chosen.size
        gathered.sort()
        return gathered


def top_cells(key_type: np.dtype[np.signedinteger[Any]]) -> Cells:
    """All keys of a type, by their top bits."""
    shift = 8 * key_type.itemsize - TOP_BITS
    first = np.arange(-(1 << (TOP_BITS - 1)), 1 << (TOP_BITS - 1), dtype=key_type)
    return Cells(shift, (first << shift) | np.array((1 << shift) - 1, key_type))
