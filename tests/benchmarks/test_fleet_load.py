"""The load's own workings, on a small fleet."""

from pathlib import Path

import pytest

from tests.benchmarks import fleet_load

GATEWAYS = 20


@pytest.mark.mosquitto
@pytest.mark.long
def test_a_small_fleet_loses_no_flag_and_every_gateway_counts(tmp_path: Path) -> None:
    load = fleet_load.measure(GATEWAYS, tmp_path, widths=(16, 32, 4), processes=2, rounds=2, limit_s=120.0)
    assert load.failures == []
    assert load.flags == {"sent": GATEWAYS, "acknowledged": GATEWAYS, "stored": GATEWAYS}
    assert [(one["round"], one["counted"], one["failed"]) for one in load.rounds] == [
        (1, GATEWAYS, 0),
        (2, GATEWAYS, 0),
    ]
    assert load.peaks_mb["rounds"]["broker"] > 0
    assert load.up_mb > 0
    assert load.down_mb > 0
