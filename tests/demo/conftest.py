"""A fitted base and three streams, made once."""

from pathlib import Path

import pytest

from server_bridge.demo.base import Groundwork, lay_groundwork
from server_bridge.demo.plan import plan_fleet
from server_bridge.demo.timing import RATE_HZ


@pytest.fixture(scope="session")
def groundwork(tmp_path_factory: pytest.TempPathFactory) -> Groundwork:
    directory: Path = tmp_path_factory.mktemp("groundwork")
    return lay_groundwork(directory, plan_fleet(3), seed=0, rate_hz=RATE_HZ)
