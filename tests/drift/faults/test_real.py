"""Real sensors: ageing is no fault, and a dead sensor is one."""

import numpy as np
import pytest

from tests.benchmarks.cohorts_data.gas import read_batch
from tests.drift.faults.sensors import Readings, begun, params_of, screened
from tests.shared_data import DATA

SENSOR_4 = range(24, 32)
"""Its eight features."""
BROKEN = (*range(217, 224), 367, 372, 378, 379, 380, 383, 384, 385, 386, 387)
"""Rows of batch 2 with a feature more than 50 deviations off."""


def _batch(number: int) -> Readings:
    return read_batch(DATA, number).features.astype(np.float64)


@pytest.mark.data
def test_gas_sensors_that_age_have_no_faults_and_one_that_fails_has() -> None:
    params = params_of(_batch(1))
    for number in (3, 4, 5):
        _, mask, reports = screened(params, _batch(number))
        assert reports == []
        assert mask.any(axis=1).mean() < 0.1
    _, mask, reports = screened(params, _batch(2))
    assert {sensor for _, sensor in begun(reports)} <= set(SENSOR_4)
    assert {"dropped", "out-of-range"} <= {word for word, _ in begun(reports)}
    assert mask[list(BROKEN)].any(axis=1).all()
