import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import ConfigError
from server_bridge.demo.plan import Family, family_sizes, plan_fleet, remount


def test_ten_gateways_are_the_issues_fleet() -> None:
    plans = plan_fleet(10)
    assert [plan.subject for plan in plans] == [1, 2, 9, 10, 5, 6, 7, 8, 3, 4]
    assert [plan.drifts for plan in plans] == [True] * 8 + [False] * 2


@given(st.integers(min_value=3, max_value=500))
def test_no_family_is_empty_and_all_gateways_are_placed(gateways: int) -> None:
    sizes = family_sizes(gateways)
    assert min(sizes.values()) >= 1
    assert sum(sizes.values()) == gateways == len({plan.id for plan in plan_fleet(gateways)})
    assert abs(sizes[Family.PERMUTED] - sizes[Family.FLIPPED]) <= 1


def test_fewer_than_three_gateways_are_refused() -> None:
    with pytest.raises(ConfigError, match="--gateways 2"):
        plan_fleet(2)


def test_remounts_are_those_of_the_issue() -> None:
    windows = np.arange(12, dtype=np.float32).reshape(1, 6, 2)
    assert remount(Family.PERMUTED, windows)[0, :, 0].tolist() == [2, 4, 0, 8, 10, 6]
    assert remount(Family.FLIPPED, windows)[0, :, 0].tolist() == [0, -2, 4, -6, -8, 10]
    assert remount(Family.STATIONARY, windows) is windows
