import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.policy.season import KNOWN_BATCHES, MEMORY_BATCHES, SeasonParams, SeasonState, learn, usual
from edge_agent.errors import DataError

DAY = SeasonParams(86_400.0, 24)
NIGHTS = SeasonParams(100.0, 2)


def learned(levels: tuple[float, float], batches: int) -> SeasonState:
    state = SeasonState.start(NIGHTS)
    for _ in range(batches):
        for part, level in enumerate(levels):
            state = learn(NIGHTS, state, np.full(4, 50.0 * part + 10.0), np.full(4, level))
    return state


def test_a_part_is_known_after_its_batches_and_gives_its_distance_from_the_mean_of_all() -> None:
    times = np.array([10.0, 60.0, 110.0, 160.0])
    assert usual(NIGHTS, learned((1.0, 3.0), KNOWN_BATCHES - 1), times).tolist() == [0.0] * 4
    assert usual(NIGHTS, learned((1.0, 3.0), KNOWN_BATCHES), times).tolist() == [-1.0, 1.0, -1.0, 1.0]


def test_a_level_that_rises_in_all_parts_alike_is_no_season() -> None:
    times = np.array([10.0, 60.0])
    before = usual(NIGHTS, learned((1.0, 3.0), KNOWN_BATCHES), times)
    assert usual(NIGHTS, learned((6.0, 8.0), KNOWN_BATCHES), times).tolist() == before.tolist()


def test_hours_are_those_of_the_day_and_a_strange_time_lies_in_the_first_part() -> None:
    times = np.array([0.0, 3600.0, 86_399.0, 86_400.0, -1.0, np.nan, np.inf])
    assert DAY.bins_of(times).tolist() == [0, 1, 23, 0, 23, 0, 0]


def test_losses_that_are_not_finite_teach_nothing() -> None:
    state = learn(NIGHTS, SeasonState.start(NIGHTS), np.array([10.0]), np.array([np.inf]))
    assert state.batches.tolist() == [0.0, 0.0]
    assert learn(NIGHTS, state, np.zeros(0), np.zeros(0)) is state


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0, 100)), max_size=30))
def test_the_state_is_of_one_size_and_comes_back_bit_for_bit(batches: list[tuple[float, float]]) -> None:
    state = SeasonState.start(DAY)
    for time_s, loss in batches:
        state = learn(DAY, state, np.array([time_s]), np.array([loss]))
    arrays = state.to_arrays()
    again = SeasonState.from_arrays(DAY, arrays)
    assert [a.tobytes() for a in again.to_arrays().values()] == [a.tobytes() for a in arrays.values()]
    assert (state.batches <= MEMORY_BATCHES).all()
    with pytest.raises(DataError, match="another season"):
        SeasonState.from_arrays(NIGHTS, arrays)


@pytest.mark.parametrize(
    ("period_s", "bins", "offset_s"), [(0.0, 2, 0.0), (np.nan, 2, 0.0), (9.0, 0, 0.0), (9.0, 2, np.inf)]
)
def test_a_season_that_is_none_is_refused(period_s: float, bins: int, offset_s: float) -> None:
    with pytest.raises(DataError, match="season"):
        SeasonParams(period_s, bins, offset_s)
