"""Ways in which a sensor's unit or scaling is set wrong: what is read is ``factor x true + offset``."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_NAMES = (
    "read x 10",
    "read x 100",
    "read x 1000",
    "read / 10",
    "read / 100",
    "read / 1000",
    "sign reversed",
    "Fahrenheit for Celsius",
    "Celsius for Fahrenheit",
    "kelvin for Celsius",
    "Celsius for kelvin",
)
_INCH, _FOOT, _PSI_BAR, _PSI_KPA, _HOUR, _DEGREES, _GRAVITY, _MINUTE = (
    25.4,
    3.28084,
    14.5038,
    6.89476,
    3.6,
    57.29578,
    9.80665,
    60.0,
)
_DECLARED: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("inches for millimetres", 1 / _INCH, ("mm", "millimetre", "millimetres")),
    ("millimetres for inches", _INCH, ("in", "inch", "inches")),
    ("feet for metres", _FOOT, ("m", "metre", "metres")),
    ("metres for feet", 1 / _FOOT, ("ft", "foot", "feet")),
    ("psi for bar", _PSI_BAR, ("bar",)),
    ("bar for psi", 1 / _PSI_BAR, ("psi",)),
    ("kPa for psi", _PSI_KPA, ("psi",)),
    ("psi for kPa", 1 / _PSI_KPA, ("kpa",)),
    ("km/h for m/s", _HOUR, ("m/s",)),
    ("m/s for km/h", 1 / _HOUR, ("km/h", "kph")),
    ("degrees for radians", _DEGREES, ("rad", "rad/s")),
    ("radians for degrees", 1 / _DEGREES, ("deg", "deg/s", "dps", "°", "°/s")),
    ("m/s2 for g", _GRAVITY, ("g",)),
    ("g for m/s2", 1 / _GRAVITY, ("m/s2", "m/s²", "m/s^2")),
    ("rpm for Hz", _MINUTE, ("hz", "1/s")),
    ("Hz for rpm", 1 / _MINUTE, ("rpm", "1/min")),
)
"""What happens to sensors whose unit the manifest says, and only to them: name, factor, units. Factors below 3 are left
out: a scale may age by as much."""
_FACTOR: NDArray[np.float64] = np.array(
    [10, 100, 1000, 0.1, 0.01, 0.001, -1, 1.8, 1 / 1.8, 1, 1, *(factor for _, factor, _ in _DECLARED)]
)
_OFFSET: NDArray[np.float64] = np.array(
    [0, 0, 0, 0, 0, 0, 0, 32, -32 / 1.8, 273.15, -273.15, *(0.0 for _ in _DECLARED)]
)
SIGN = 6
_COUNT = len(_NAMES) + len(_DECLARED)
_FAHRENHEIT_FOR_CELSIUS, _CELSIUS_FOR_FAHRENHEIT, _KELVIN_FOR_CELSIUS, _CELSIUS_FOR_KELVIN = range(7, 11)
_CELSIUS = ("c", "°c", "degc", "celsius")
_FAHRENHEIT = ("f", "°f", "degf", "fahrenheit")
_KELVIN = ("k", "kelvin")
_DIRECTED = ("g", "m/s2", "m/s²", "m/s^2", "rad/s", "deg/s", "dps", "°/s", "t", "ut", "µt", "mt", "gauss", "n", "nm")
"""Units of what has a direction: a sensor that is mounted anew may read the opposite."""


def may_be_turned(units: tuple[str, ...]) -> NDArray[np.bool_]:
    """(c,) whether the sensors measure what has a direction, or may: a remount is no fault."""
    return np.array([unit.strip().lower() in ("", *_DIRECTED) for unit in units], np.bool_)


def name_of(number: int) -> str:
    """In words."""
    return _NAMES[number] if number < len(_NAMES) else _DECLARED[number - len(_NAMES)][0]


class Changes(NamedTuple):
    """The k changes of unit that at least one of c sensors may have.

    Attributes:
        numbers: (k,) for :func:`name_of`; those that a declared unit suggests come first.
        factor, offset: (k, 1).
        able: (k, c) bool: which sensors may have it.
    """

    numbers: NDArray[np.int64]
    factor: NDArray[np.float64]
    offset: NDArray[np.float64]
    able: NDArray[np.bool_]

    @classmethod
    def of(cls, units: tuple[str, ...]) -> Self:
        """Of sensors measured in these units."""
        able = _applicable(units)
        numbers = np.flatnonzero(able.any(axis=1))
        numbers = np.concatenate([numbers[numbers >= len(_NAMES)], numbers[numbers < len(_NAMES)]])
        return cls(numbers, _FACTOR[numbers, None], _OFFSET[numbers, None], able[numbers])

    def true_of(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., c) what is read to (k, ..., c): what is true if it is read so."""
        shape = (len(self.numbers),) + (1,) * read.ndim
        true: NDArray[np.float64] = (read[None] - self.offset.reshape(shape)) / self.factor.reshape(shape)
        return true


def _applicable(units: tuple[str, ...]) -> NDArray[np.bool_]:
    """(COUNT, c): whether sensors measured in these units can be read so."""
    named = [unit.strip().lower() for unit in units]
    able = np.ones((_COUNT, len(units)), np.bool_)
    # Where the manifest does not say, only the commonest: a turbine's exhaust at half its 550 degrees looks like
    # Celsius for kelvin.
    able[_FAHRENHEIT_FOR_CELSIUS] = [unit in _CELSIUS or not unit for unit in named]
    able[_CELSIUS_FOR_FAHRENHEIT] = [unit in _FAHRENHEIT for unit in named]
    able[_KELVIN_FOR_CELSIUS] = [unit in _CELSIUS for unit in named]
    able[_CELSIUS_FOR_KELVIN] = [unit in _KELVIN for unit in named]
    able[SIGN] = ~may_be_turned(units)
    for place, (_, _, declared) in enumerate(_DECLARED, start=len(_NAMES)):
        able[place] = [unit in declared for unit in named]
    return able
