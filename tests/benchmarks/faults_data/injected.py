"""Faults, and drifts that are none, put into recorded readings of one sensor."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tests.benchmarks.faults_data.recorded import Readings

Change = Callable[[Readings, Readings, np.random.Generator], Readings]
"""Of the readings to be changed (any shape), and all that the sensor ever read."""


def _some(share: float, value: float) -> Change:
    return lambda x, all_read, rng: np.where(rng.random(x.shape) < share, value, x)


def _clipped(quantile: float) -> Change:
    return lambda x, all_read, rng: np.minimum(x, np.quantile(x, quantile))


FAULTS: Mapping[str, Change] = MappingProxyType(
    {
        "stuck": lambda x, all_read, rng: np.full_like(x, x.reshape(-1)[0]),
        "dropped: zeros": lambda x, all_read, rng: np.zeros_like(x),
        "dropped: -9999": lambda x, all_read, rng: np.full_like(x, -9999.0),
        "dropped: 30 % zeros": _some(0.3, 0.0),
        "missing: NaN": lambda x, all_read, rng: np.full_like(x, np.nan),
        "missing: 10 % NaN": _some(0.1, np.nan),
        "not finite: inf": lambda x, all_read, rng: np.full_like(x, np.inf),
        "clipped at the 80 % quantile": _clipped(0.8),
        "clipped at the 95 % quantile": _clipped(0.95),
        "out of range: 10 % + 200 deviations": lambda x, all_read, rng: np.where(
            rng.random(x.shape) < 0.1, x + 200 * all_read.std(), x
        ),
        "out of range: + 100 deviations": lambda x, all_read, rng: x + 100 * all_read.std(),
        "unit: x 10": lambda x, all_read, rng: 10 * x,
        "unit: x 1000": lambda x, all_read, rng: 1000 * x,
        "unit: / 10": lambda x, all_read, rng: x / 10,
        "unit: / 1000": lambda x, all_read, rng: x / 1000,
        "unit: 1.8 x + 32": lambda x, all_read, rng: 1.8 * x + 32,
        "unit: sign": lambda x, all_read, rng: -x,
    }
)
DRIFTS: Mapping[str, Change] = MappingProxyType(
    {
        "scale x 2": lambda x, all_read, rng: 2 * x,
        "scale / 2": lambda x, all_read, rng: x / 2,
        "+ 2 deviations": lambda x, all_read, rng: x + 2 * all_read.std(),
        "+ 5 deviations": lambda x, all_read, rng: x + 5 * all_read.std(),
        "ageing to x 2": lambda x, all_read, rng: x * np.linspace(1, 2, len(x)).reshape(-1, *[1] * (x.ndim - 1)),
    }
)
