"""What the build leaves on the gateway for the estimate: the reference in the form in which it is compared."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.estimated import Quantity
from edge_agent.drift.accuracy.signals import SignalMap, Signals
from edge_agent.drift.accuracy.weighing import chance, chance_of, level, level_of
from edge_agent.drift.observed import Columns
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

Floats = NDArray[np.float64]

NAME = "accuracy"
NEVER = 1e300
_SCALARS = ("window", "expected", "changed_limit", "passing_limit", "clip", "tolerated_fall", "warned_fall")
_MAP_SCALARS = ("inputs", "embedded", "classes", "single")


@dataclass(frozen=True)
class AccuracyParams:
    """Constants and reference of the estimate.

    Attributes:
        quantity: accuracy, or loss.
        batch_size: rows a step.
        window: rows after which a figure is given, a multiple of ``batch_size``.
        expected: accuracy (mean clipped loss) of the reference.
        changed_limit: misfit above which a window counts as changed.
        passing_limit: distance of a window's halves above which something changes within it.
        clip: losses are clipped at it; 1 for accuracies.
        tolerated_fall: of accuracy (rise of the loss) below which nothing alarms; huge: the estimate never does.
        warned_fall: the same of a warning.
        map: rows to signals.
        coefficients: of a row's own chance of being right (expected loss).
        middle, width: (h,) of the averaged functions in the reference.
        rows: (n, p) the reference's first p functions, standardised: what weights balance.
        own: (n, c) the reference's squared standardised readings of each input that is looked at by itself.
        residuals: (n,) right or not (loss) less what a model fitted without the row expects.
        first: (p, p) of the weights' first step.
        means, levels, counts: of each class (fifth of the targets) that the reference has: (c, h) functions,
            (c,) accuracy, (c,) rows.
        inverse: (h, h) inverse covariance of the functions within classes.
        absent: classes of which the reference has one row or none.
        inflations: (s + c,) what neighbours that resemble each other do to the variance of the mean of each squared
            signal, and of each squared reading.
    """

    quantity: Quantity
    batch_size: int
    window: int
    expected: float
    changed_limit: float
    passing_limit: float
    clip: float
    tolerated_fall: float
    warned_fall: float
    map: SignalMap
    coefficients: Floats
    middle: Floats
    width: Floats
    rows: Floats
    own: Floats
    residuals: Floats
    first: Floats
    means: Floats
    levels: Floats
    counts: Floats
    inverse: Floats
    absent: NDArray[np.int64]
    inflations: Floats

    @property
    def averaged(self) -> int:
        """Functions that are averaged: h + s + c."""
        return len(self.middle) + len(self.inflations)

    def functions(self, seen: Signals) -> Floats:
        """(n, h) what is compared: the row's chance, its signals, its probabilities, its steps."""
        signals, shares, _ = seen
        expects = (chance if self.quantity == "accuracy" else level)(design_of(signals), self.coefficients)
        count, wide = signals.shape
        first = 1 + wide + shares.shape[1]
        last = first + self.map.steps.size
        table = np.empty((count, last))
        table[:, 0] = expects
        table[:, 1 : 1 + wide] = signals
        table[:, 1 + wide : first] = shares
        table[:, first:] = self.map.stepped(signals)
        return table

    def sums(self, seen: Signals, size: int) -> Floats:
        """(n / size, h + s + c) sums over batches of ``size`` rows: of :meth:`functions`, for less than these cost; of
        squared signals; of squared readings.

        Each is what it would be alone, bit for bit.
        """
        signals, shares, own = seen
        rows, wide = signals.reshape(-1, size, signals.shape[1]), signals.shape[1]
        linear = rows @ self.coefficients[1:-1]
        linear += self.coefficients[0]
        linear += self.coefficients[-1] * (np.square(rows[:, :, 0]) - 1.0)
        expects = (chance_of if self.quantity == "accuracy" else level_of)(linear)
        first = 1 + wide + shares.shape[1]
        last, ones = first + self.map.steps.size, np.ones(size)
        table = np.empty((len(rows), last + wide + own.shape[1]))
        np.add.reduce(expects, axis=1, out=table[:, 0])
        table[:, 1 : 1 + wide] = ones @ rows
        table[:, 1 + wide : first] = ones @ shares.reshape(len(rows), size, shares.shape[1])
        table[:, first:last] = self.map.stepped_often(signals, size)
        table[:, last : last + wide] = ones @ np.square(rows)
        table[:, last + wide :] = ones @ own.reshape(len(rows), size, own.shape[1])
        return table

    @cached_property
    def squares(self) -> NDArray[np.float32]:
        """(n, 2 (s + c)) squared signals and readings of the reference's rows, and their squares.

        In single precision: every window weighs all of them, and a millionth of a spread decides nothing.
        """
        signals = slice(1, 1 + len(self.map.middle))
        rows = self.rows[:, signals] * self.width[signals] + self.middle[signals]
        squares = np.concatenate([np.square(rows), self.own], axis=1)
        return np.concatenate([squares, np.square(squares)], axis=1, dtype=np.float32)

    def narrowed(self, features: int) -> tuple[Columns, Self]:
        """The columns of a sample's features that are looked at, if not all are; and the same monitor of samples that
        have these alone.

        Args:
            features: of a sample. Of as many as the reference does not have, as where all are looked at, none is named.
        """
        columns, inputs = self.map.columns, self.map.inputs
        read = columns[columns < inputs]
        if len(read) == inputs or features != inputs:
            return (), self
        places = np.concatenate([np.arange(len(read)), columns[len(read) :] - inputs + len(read)])
        return (read,), replace(self, map=replace(self.map, inputs=len(read), columns=places))

    @classmethod
    def from_spec(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From the manifest's entry and the arrays ``accuracy.*`` of ``drift.safetensors``.

        Raises:
            DataError: one is missing (named), or of a shape that does not fit.
        """
        scalars, arrays = _as_now(spec.parameters, arrays)
        try:
            numbers: dict[str, Any] = {name: float(scalars[name]) for name in _SCALARS}
            whole: dict[str, Any] = {name: int(scalars[name]) for name in _MAP_SCALARS}
            quantity = {"accuracy": "accuracy", "loss": "loss"}[str(scalars["quantity"])]
            mapped: dict[str, Any] = {name: _typed(arrays[f"map.{name}"]) for name in _array_fields(SignalMap)}
            own: dict[str, Any] = {name: _typed(arrays[name]) for name in _array_fields(cls)}
        except (KeyError, ValueError) as error:
            raise DataError(f"monitor {NAME}: {error} is missing or wrong", "build the bundle again") from None
        numbers["window"] = int(numbers["window"])
        signal_map = SignalMap(**mapped, **whole)
        found = cls(quantity=cast(Quantity, quantity), batch_size=spec.batch_size, map=signal_map, **own, **numbers)
        found._check()
        return found

    def to_spec(self) -> MonitorSpec:
        """The manifest's entry; it promises no false-alarm rate, since an estimate raises no flag."""
        scalars: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        scalars |= {name: getattr(self.map, name) for name in _MAP_SCALARS} | {"quantity": self.quantity}
        words = f"{self.quantity} {self.expected:.3f} on {len(self.rows)} rows; a figure every {self.window} rows"
        return MonitorSpec(parameters=scalars, batch_size=self.batch_size, false_alarm_rate=0.0, evidence=words)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of the bundle, by name without the monitor's."""
        arrays = {name: np.array(getattr(self, name)) for name in _array_fields(type(self))}
        return arrays | {f"map.{name}": np.array(getattr(self.map, name)) for name in _array_fields(SignalMap)}

    def _check(self) -> None:
        many, p = self.rows.shape if self.rows.ndim == 2 else (0, 0)
        h, c = len(self.middle), len(self.counts)
        shapes = {
            "residuals": (many,),
            "first": (p, p),
            "width": (h,),
            "means": (c, h),
            "levels": (c,),
            "inverse": (h, h),
            "own": (many, self.map.single),
            "inflations": (len(self.map.middle) + self.map.single,),
        }
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        if wrong or many == 0 or self.window % self.batch_size or self.window < self.batch_size:
            raise DataError(f"monitor {NAME}: {(wrong or ['window'])[0]!r} does not fit", "build the bundle again")


def design_of(signals: Floats) -> Floats:
    """(n, s + 2) columns of the model of a row's own chance: constant, signals, squared confidence."""
    design = np.ones((len(signals), signals.shape[1] + 2))
    design[:, 1:-1] = signals
    design[:, -1] = np.square(signals[:, 0]) - 1.0
    return design


def _as_now(
    scalars: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]:
    """A bundle built before neighbours were asked for takes rows for independent, as it was calibrated; one built
    before each input's spread was looked at has none of them."""
    if "single" in scalars or "changed_limit" not in scalars or not {"map.middle", "rows"} <= set(arrays):
        return scalars, arrays
    alone, nothing = np.ones_like(arrays["map.middle"]), np.zeros((len(arrays["rows"]), 0))
    limits = {"passing_limit": scalars["changed_limit"], "single": 0}
    return {**limits, **scalars}, {"inflations": alone, "own": nothing, **arrays}


def _array_fields(kind: type[Any]) -> list[str]:
    scalar = {*_SCALARS, *_MAP_SCALARS, "quantity", "batch_size", "map"}
    return [field.name for field in fields(kind) if field.name not in scalar]


def _typed(array: NDArray[Any]) -> NDArray[Any]:
    return np.array(array, np.int64 if array.dtype.kind in "iu" else np.float64)
