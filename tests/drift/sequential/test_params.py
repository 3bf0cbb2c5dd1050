"""Constants that make no sense are refused by name."""

import math

import numpy as np
import pytest

from edge_agent.drift.sequential.loss_level import LossLevelParams
from edge_agent.drift.sequential.table import Distribution
from edge_agent.errors import DataError


@pytest.mark.parametrize(
    ("name", "value"),
    [("threshold", 0.0), ("threshold", math.nan), ("warning_threshold", 99.0), ("batch_size", 0), ("inflation", 0.5)],
)
def test_constants_out_of_range_are_named(name: str, value: float) -> None:
    constants = {"threshold": 9.0, "warning_threshold": 7.0, "batch_size": 32, "inflation": 1.0, name: value}
    with pytest.raises(DataError, match=f"{name} = "):
        LossLevelParams(**constants, distribution=Distribution.of(np.zeros(3)))  # type: ignore[arg-type]  # a table
