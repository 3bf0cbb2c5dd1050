import pytest

from edge_agent.drift.loss_rise import LossRiseParams
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec


@pytest.mark.parametrize(
    "wrong",
    [{"gamma": "high"}, {"gamma": True}, {"patience": 1.5}, {"hold_previous": 1}, {"clip": -1.0}, {"gamma": -1.0}],
)
def test_a_constant_of_the_bundle_that_is_wrong_is_named(wrong: dict[str, float | str | bool]) -> None:
    spec = MonitorSpec(parameters={"gamma": 0.3, **wrong}, batch_size=8, false_alarm_rate=0.001)
    with pytest.raises(DataError, match=next(iter(wrong))):
        LossRiseParams.from_spec(spec)
    with pytest.raises(DataError, match="gamma is missing"):
        LossRiseParams.from_spec(MonitorSpec(parameters={}, batch_size=8, false_alarm_rate=0.001))


def test_whole_numbers_serve_where_json_dropped_the_point() -> None:
    spec = MonitorSpec(parameters={"gamma": 1, "clip": 2, "unknown": "x"}, batch_size=8, false_alarm_rate=0.001)
    assert LossRiseParams.from_spec(spec).gamma == 1.0
