"""What monitors are shown: samples as they were served, and samples whose labels have come."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Observed:
    """Samples in the order in which they were served, all by the same weights; labels are not needed.

    Attributes:
        ids: n sample ids.
        times_s: (n,) float64, when they were measured; may repeat, run backwards or jump.
        features: (n, f) float, the inputs in the manifest's order, each flattened; may hold non-finite numbers.
        outputs: (n, k) the primary output: logits of k classes, one logit of class 1 (k = 1), or values.
        embeddings: (n, d) output of role embedding; None: the model gives none.
        faulty: (n, f) bool, readings that are taken for broken and left out of judgement; None: none is.
        finite: the features are known to be, but where faulty: nothing has to look for others.
        broken: (n,) bool, rows with a broken reading anywhere, where ``features`` and ``faulty`` are some of a sample's
            columns only (:func:`narrowed`); None: none has, or they are all columns.
    """

    ids: list[str]
    times_s: NDArray[np.float64]
    features: NDArray[Any]
    outputs: NDArray[Any]
    embeddings: NDArray[Any] | None = None
    faulty: NDArray[np.bool_] | None = None
    finite: bool = False
    broken: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def broken_rows(self) -> NDArray[np.bool_] | None:
        """(n,) which rows have a broken reading; None: none has."""
        rows = self.broken
        if rows is None and self.faulty is not None:
            rows = np.logical_or.reduce(self.faulty, axis=1)
        return rows if rows is not None and np.count_nonzero(rows) else None

    def part(self, start: int, stop: int) -> "Observed":
        """Rows ``start`` to before ``stop``: views."""
        some = slice(start, stop)
        return Observed(
            self.ids[some],
            self.times_s[some],
            self.features[some],
            self.outputs[some],
            None if self.embeddings is None else self.embeddings[some],
            None if self.faulty is None else self.faulty[some],
            self.finite,
            None if self.broken is None else self.broken[some],
        )


Columns = Sequence[slice | NDArray[np.int64]]
"""Some columns of a table, side by side."""


def narrowed(seen: Observed, columns: Columns) -> Observed:
    """The same samples with some columns of their features only: a copy of these.

    Args:
        seen: with all columns, of which what is not finite is ``faulty``: of the others nobody would know any more.

    Cost: O(n c).
    """
    return Observed(
        seen.ids,
        seen.times_s,
        _chosen(seen.features, columns),
        seen.outputs,
        seen.embeddings,
        None if seen.faulty is None else _chosen(seen.faulty, columns),
        seen.finite,
        seen.broken_rows,
    )


def _chosen(table: NDArray[Any], columns: Columns) -> NDArray[Any]:
    parts = [table[:, one] for one in columns]
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Samples in the order in which their labels came, all served by the same weights.

    Attributes:
        ids: n sample ids.
        times_s: (n,) float64, when the samples were measured.
        losses: (n,) float64, >= 0, ``inf`` where the output was not finite (``drift.losses.sample_losses``).
        delays_s: (n,) float64 from the sample's serving to its label, by the running clock; NaN: unknown.
    """

    ids: list[str]
    times_s: NDArray[np.float64]
    losses: NDArray[np.float64]
    delays_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> "Labelled":
        """Rows ``start`` to before ``stop``: views."""
        some = slice(start, stop)
        return Labelled(self.ids[some], self.times_s[some], self.losses[some], self.delays_s[some])


def all_finite(numbers: NDArray[Any]) -> bool:
    """Whether all are: one that is not makes a sum so, as large ones may; only then is each looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(np.add.reduce(numbers, axis=None)) or bool(np.isfinite(numbers).all())
