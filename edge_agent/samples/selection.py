"""Which of the stored samples a set takes. Pure: insertion numbers and labels in, insertion numbers out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Row = tuple[int, float | int]
"""Insertion number and label."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a training set is made of besides the newest samples.

    Attributes:
        rehearsal_share: of the set, in [0, 1), that comes from the reservoir; less where that holds less.
        balanced: as many of every class as there are, newest first, instead of simply the newest.
        seed: of the draw from the reservoir.
    """

    rehearsal_share: float = 0.0
    balanced: bool = False
    seed: int = 0

    def new(self, limit: int) -> int:
        """How many of ``limit`` samples may be new: at least one."""
        return max(1, limit - int(limit * self.rehearsal_share))

    def old(self, new: int, limit: int) -> int:
        """How many go with ``new`` new ones, so that the share is kept within the limit."""
        return min(limit - new, int(new * self.rehearsal_share / (1.0 - self.rehearsal_share)))


NEWEST = Mixture()


def newest(rows: Sequence[Row], count: int, *, balanced: bool) -> list[int]:
    """At most ``count`` of the rows, the newest, or the newest of every class alike; in their order.

    Args:
        rows: in the order of insertion.
        balanced: see :class:`Mixture`; targets of a regression count as classes of their own.
    """
    if not balanced:
        return [seq for seq, _ in rows[max(0, len(rows) - count) :]]
    classes: dict[float | int, list[int]] = {}
    for seq, label in rows:
        classes.setdefault(label, []).append(seq)
    shares = even_shares([len(seqs) for seqs in classes.values()], count)
    chosen = [seqs[len(seqs) - share :] for seqs, share in zip(classes.values(), shares, strict=True)]
    return sorted(seq for seqs in chosen for seq in seqs)


def drawn(rows: Sequence[Row], count: int, rng: "np.random.Generator") -> list[int]:
    """At most ``count`` rows drawn at random, as many of every class as there are; in the order of insertion."""
    classes: dict[float | int, list[int]] = {}
    for seq, label in rows:
        classes.setdefault(label, []).append(seq)
    shares = even_shares([len(seqs) for seqs in classes.values()], count)
    chosen: list[int] = []
    for seqs, share in zip(classes.values(), shares, strict=True):
        chosen += rng.choice(seqs, size=share, replace=False).tolist()
    return sorted(chosen)


def even_shares(sizes: Sequence[int], total: int) -> list[int]:
    """``total`` dealt out over groups as evenly as their sizes allow; what does not come out even goes to the first.

    Args:
        sizes: of the groups.
        total: to deal out; all that there is, where it is more.
    """
    shares = [0] * len(sizes)
    left = min(total, sum(sizes))
    while left > 0:
        open_groups = [place for place, size in enumerate(sizes) if shares[place] < size]
        each = max(1, left // len(open_groups))
        for place in open_groups[:left]:
            more = min(each, sizes[place] - shares[place], left)
            shares[place] += more
            left -= more
    return shares
