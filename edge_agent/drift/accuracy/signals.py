"""What the estimate looks at: a few numbers a row, from its outputs and from where its inputs lie.

A row's signals are the model's confidence (its value, in a regression), the coordinates along the principal axes of the
reference's inputs and embeddings, how far along them and how far beside them it lies. Of the signals a fixed list of
functions is averaged over a window, so that a window of any length is one vector. Of few inputs each one's own reading
is looked at too, for how far it spreads: a sensor that is noisy or scaled hardly shows along axes that it shares.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.products import by_batch
from edge_agent.errors import DataError

Floats = NDArray[np.float64]

AXES, AXES_ROWS = 16, 1000
COLUMNS_CAP = 256
OWN_CAP = 64
"""Inputs up to which each one's own spread is looked at."""
NARROW = 512
SHARE_COLUMNS = 15
"""Classes whose probabilities are averaged on their own, the most frequent ones."""
STEPS = (0.1, 0.5, 0.9)
_FAR, _NEAR = 30.0, 4.0
_TINY = 1e-9
_SET_BITS = np.array([number.bit_count() for number in range(256)], np.uint8)


class Signals(NamedTuple):
    """Of n usable rows.

    Attributes:
        signals: (n, s) standardised.
        shares: (n, l) probabilities of the listed classes.
        own: (n, c) squared standardised readings, at most 16, of the inputs that are looked at one by one.
    """

    signals: Floats
    shares: Floats
    own: Floats


@dataclass(frozen=True)
class SignalMap:
    """Rows to signals, as the reference has them.

    Attributes:
        inputs, embedded: columns of features and embeddings; rows of other widths are refused.
        columns: (c,) int64 of the columns that are looked at, at most 256.
        single: the first so many of them are inputs whose own spread is looked at.
        centre, rate: (c,) mean, and factor to unit spread (over the root of the block's columns).
        axes: (q, c) principal axes, q <= 16.
        spread: (q,) standard deviation along each.
        classes: of a classification, else 0.
        listed: (l,) int64, classes whose probabilities are looked at.
        middle, width: (s,) mean and deviation of the signals.
        steps: (s, 3) quantiles of each standardised signal.
        furthest: (2,) largest distance along and beside the axes in the reference.
    """

    inputs: int
    embedded: int
    columns: NDArray[np.int64]
    single: int
    centre: Floats
    rate: Floats
    axes: Floats
    spread: Floats
    classes: int
    listed: NDArray[np.int64]
    middle: Floats
    width: Floats
    steps: Floats
    furthest: Floats

    @classmethod
    def fit(cls, observed: Observed, labels: NDArray[Any], classes: int | None) -> Self:
        """From the reference's rows, all finite.

        Args:
            labels: (n,) class numbers or targets.

        Cost: a decomposition of at most (1000, 1000), once.
        """
        inputs, embedded = _widths(observed)
        every = inputs + embedded
        columns = np.unique(np.linspace(0, every - 1, min(every, COLUMNS_CAP)).astype(np.int64))
        table = _table(observed, columns)
        read = int((columns < inputs).sum())
        blocks = np.where(columns < inputs, read, len(columns) - read)
        centre, deviation = (told(axis=0, dtype=np.float64) for told in (table.mean, table.std))
        deviation = np.maximum(deviation, 1e-6 * np.abs(centre) + _TINY)
        rate = 1.0 / (deviation * np.sqrt(blocks))
        axes, spread = _principal((table - centre) * rate)
        listed = np.zeros(0, np.int64)
        if classes is not None:
            listed = np.argsort(-np.bincount(labels.astype(np.int64), minlength=classes), kind="stable")
            listed = np.sort(listed[1 : SHARE_COLUMNS + 1])
        empty = np.zeros(0)
        made = cls(
            inputs=inputs,
            embedded=embedded,
            columns=columns,
            single=read if read <= OWN_CAP else 0,
            centre=centre,
            rate=rate,
            axes=axes,
            spread=spread,
            classes=classes or 0,
            listed=listed,
            middle=empty,
            width=empty,
            steps=empty,
            furthest=empty,
        )
        return made._standardised(observed)

    def _standardised(self, observed: Observed) -> Self:
        raw, *_ = self._raw(observed)
        middle, width = raw.mean(axis=0), np.maximum(raw.std(axis=0), _TINY)
        scaled = np.clip((raw - middle) / width, -_NEAR, _NEAR)
        steps = np.quantile(scaled, STEPS, axis=0).T
        return replace(self, middle=middle, width=width, steps=steps, furthest=raw[:, 2:4].max(axis=0))

    def signals(self, observed: Observed, size: int | None = None) -> tuple[Signals, NDArray[np.bool_]]:
        """What is seen of usable rows, and (n,) which of them lie outside of the support.

        Args:
            size: rows a batch; each is what it would be alone, bit for bit. None: all are one.

        Raises:
            DataError: rows of other widths than the reference's.
        """
        raw, shares, own = self._raw(observed, size)
        outside = (raw[:, 2] > self.furthest[0]) | (raw[:, 3] > self.furthest[1])
        raw -= self.middle
        raw /= self.width
        np.clip(raw, -_NEAR, _NEAR, out=raw)
        return Signals(raw, shares, own), outside

    def stepped(self, signals: Floats) -> NDArray[np.bool_]:
        """(n, 3 s) which steps each signal is above."""
        above: NDArray[np.bool_] = signals[:, :, None] > self.steps
        return above.reshape(len(signals), -1)

    def stepped_often(self, signals: Floats, size: int) -> NDArray[np.int64]:
        """(n / size, 3 s) how many of each batch's ``size`` rows are above each step."""
        columns = np.ascontiguousarray(signals.T)
        above = columns[:, None, :] > self.steps[:, :, None]
        packed = np.packbits(above.reshape(self.steps.size, -1, size), axis=2)
        counts: NDArray[np.int64] = np.add.reduce(_SET_BITS.take(packed), axis=2, dtype=np.int64)
        return counts.T

    def _raw(self, observed: Observed, size: int | None = None) -> tuple[Floats, Floats, Floats]:
        if _widths(observed) != (self.inputs, self.embedded):
            raise DataError(f"accuracy: rows of {sum(_widths(observed))} numbers, not {self.inputs + self.embedded}")
        table = _table(observed, self.columns)
        centre, rate, axes = self._as(table.dtype)
        table -= centre
        table *= rate
        whole = np.einsum("ij,ij->i", table, table)
        if float(np.maximum.reduce(whole, initial=0.0)) > _FAR**2:  # else no value lies so far away
            np.clip(table, -_FAR, _FAR, out=table)
            whole = np.einsum("ij,ij->i", table, table)
        along = by_batch(table, axes, size or len(table)).astype(np.float64, copy=False)
        beside = np.maximum(whole - np.einsum("ij,ij->i", along, along), 0.0)
        along /= self.spread
        np.clip(along, -5.0, 5.0, out=along)
        raw = np.empty((len(along), along.shape[1] + 4))
        raw[:, 2] = np.log(np.einsum("ij,ij->i", along, along) / along.shape[1] + 1e-3)
        raw[:, 3] = np.log(beside + 1e-4)
        raw[:, 4:] = along
        own = np.square(table[:, : self.single], dtype=np.float64)
        own *= self.single
        return raw, self._of_outputs(observed.outputs, raw), np.minimum(own, _NEAR**2, out=own)

    def _as(self, kind: "np.dtype[Any]") -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Centre, rate and (c, q) axes in the table's type."""
        if kind == np.float64:
            return self.centre, self.rate, self.axes.T
        return self._short

    @cached_property
    def _short(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        return self.centre.astype(np.float32), self.rate.astype(np.float32), self.axes.T.astype(np.float32)

    def _of_outputs(self, outputs: NDArray[Any], raw: Floats) -> Floats:
        """Fill the first two signals; the listed classes' probabilities."""
        if self.classes == 0:
            raw[:, 0] = np.asarray(outputs, np.float64).reshape(len(outputs), -1)[:, 0]
            np.abs(raw[:, 0], out=raw[:, 1])
            return np.zeros((len(outputs), 0))
        chances, certain, doubt = _chances(outputs)
        if len(chances) != self.classes:
            raise DataError(f"accuracy: outputs of {len(chances)} classes, not {self.classes}")
        raw[:, 0] = np.log(np.maximum(certain, 1e-6) / np.maximum(1.0 - certain, 1e-5))
        raw[:, 1] = doubt
        return chances.T[:, self.listed]


def _chances(outputs: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """(classes, n) probabilities of finite logits, (n,) the largest of them, and (n,) their entropy; one logit is that
    of class 1 of two."""
    wide = np.array(outputs.reshape(len(outputs), -1).T, np.float64, order="C")
    if len(wide) == 1:
        wide = np.concatenate([np.zeros_like(wide), wide])
    wide -= np.maximum.reduce(wide, axis=0)
    powers = np.exp(wide)
    total = np.add.reduce(powers, axis=0)
    powers /= total
    wide *= powers
    return powers, 1.0 / total, np.log(total) - np.add.reduce(wide, axis=0)


def usable_rows(observed: Observed) -> NDArray[np.bool_] | None:
    """(n,) rows whose inputs, embeddings and outputs are all finite and not known to be broken; None: all are."""
    features = None if observed.finite else observed.features
    columns = [column for column in (features, observed.outputs, observed.embeddings) if column is not None]
    # what is not finite anywhere is not finite in a sum; a sum of large numbers may be none either
    with np.errstate(over="ignore", invalid="ignore"):
        if observed.faulty is None and all(math.isfinite(np.add.reduce(column, axis=None)) for column in columns):
            return None
    fine = np.ones(len(observed), np.bool_)
    for column in columns:
        fine &= np.isfinite(column.reshape(len(column), -1)).all(axis=1)
    broken = observed.broken_rows
    fine = fine if broken is None else fine & ~broken
    return None if fine.all() else fine


def _principal(scaled: Floats) -> tuple[Floats, Floats]:
    """(q, c) principal axes and (q,) deviations along them, of at most 1000 rows at even steps."""
    some = scaled[np.unique(np.linspace(0, len(scaled) - 1, min(len(scaled), AXES_ROWS)).astype(np.int64))]
    tall = len(some) > some.shape[1]
    squares, sides = np.linalg.eigh(some.T @ some if tall else some @ some.T)
    q = max(1, min(AXES, int((squares > 1e-12 * squares[-1]).sum())))
    sizes = np.sqrt(np.maximum(squares[-q:][::-1], 0.0))
    sides = sides[:, -q:][:, ::-1]
    axes = sides.T if tall else (some.T @ sides / np.maximum(sizes, _TINY)).T
    return np.ascontiguousarray(axes, np.float64), np.maximum(sizes / np.sqrt(len(some)), _TINY)


def _widths(observed: Observed) -> tuple[int, int]:
    """Columns of features, and of embeddings."""
    embedded = 0 if observed.embeddings is None else math.prod(observed.embeddings.shape[1:])
    return math.prod(observed.features.shape[1:]), embedded


def _table(observed: Observed, columns: NDArray[np.int64]) -> NDArray[Any]:
    """(n, c) the columns that are looked at, of features and embeddings side by side."""
    rows, (inputs, embedded) = len(observed.features), _widths(observed)
    if len(columns) == inputs + embedded:
        parts = [observed.features.reshape(rows, -1)]
        parts += [] if observed.embeddings is None else [observed.embeddings.reshape(rows, -1)]
    else:
        parts = [observed.features.reshape(rows, -1)[:, columns[columns < inputs]]]
        if observed.embeddings is not None:
            parts.append(observed.embeddings.reshape(rows, -1)[:, columns[columns >= inputs] - inputs])
    # many columns in half the width: what they are summed up to is known to six digits, which is more than it means
    table: NDArray[Any] = np.empty((rows, len(columns)), np.float64 if len(columns) <= NARROW else np.float32)
    return np.concatenate(parts, axis=1, out=table, casting="same_kind")
