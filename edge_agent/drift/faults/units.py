"""Ways in which a sensor's unit or scaling is set wrong: what is read is ``factor x true + offset``."""

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
FACTOR: NDArray[np.float64] = np.array([10, 100, 1000, 0.1, 0.01, 0.001, -1, 1.8, 1 / 1.8, 1, 1])[:, None]
OFFSET: NDArray[np.float64] = np.array([0, 0, 0, 0, 0, 0, 0, 32, -32 / 1.8, 273.15, -273.15])[:, None]
SIGN = 6
COUNT = len(_NAMES)
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
    return _NAMES[number]


def applicable(units: tuple[str, ...]) -> NDArray[np.bool_]:
    """(COUNT, c): whether sensors measured in these units can be read so."""
    named = [unit.strip().lower() for unit in units]
    able = np.ones((COUNT, len(units)), np.bool_)
    # Where the manifest does not say, only the commonest: a turbine's exhaust at half its 550 degrees looks like
    # Celsius for kelvin.
    able[_FAHRENHEIT_FOR_CELSIUS] = [unit in _CELSIUS or not unit for unit in named]
    able[_CELSIUS_FOR_FAHRENHEIT] = [unit in _FAHRENHEIT for unit in named]
    able[_KELVIN_FOR_CELSIUS] = [unit in _CELSIUS for unit in named]
    able[_CELSIUS_FOR_KELVIN] = [unit in _KELVIN for unit in named]
    able[SIGN] = ~may_be_turned(units)
    return able


def true_of(read: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., c) what is read to (COUNT, ..., c): what is true if it is read so."""
    shape = (COUNT,) + (1,) * read.ndim
    true: NDArray[np.float64] = (read[None] - OFFSET.reshape(shape)) / FACTOR.reshape(shape)
    return true
