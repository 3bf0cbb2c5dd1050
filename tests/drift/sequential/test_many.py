"""Several batches at once are bit for bit what they are one by one, however the stream is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.sequential.loss_level import LossLevelParams, LossLevelState, rebaseline, step, step_many
from edge_agent.drift.sequential.many import advance_blocks
from edge_agent.drift.sequential.mixture import BLOCK, Evidence
from edge_agent.errors import DataError
from tests.drift.sequential.streams import SIZE, default_params, labelled, run
from tests.drift.streams import clean_losses, drifted_losses

PARAMS = default_params()


def grouped(
    params: LossLevelParams, state: LossLevelState, losses: NDArray[np.float64], sizes: list[int]
) -> tuple[LossLevelState, list[Finding]]:
    found: list[Finding] = []
    for size in sizes:
        first = len(found) * params.batch_size
        state, some = step_many(params, state, labelled(losses[first : first + size * params.batch_size]))
        found += some
    return state, found


def assert_same(one: LossLevelState, other: LossLevelState) -> None:
    for name, array in one.to_arrays().items():
        assert array.tobytes() == other.to_arrays()[name].tobytes(), name


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    seed=st.integers(0, 999),
    begin=st.sampled_from(["start", "warm-up", "early", "old"]),
    end=st.sampled_from(["clean", "drift", "infinite"]),
    batch=st.sampled_from([SIZE, 2 * SIZE, 48]),
)
@settings(max_examples=20, deadline=None)
def test_findings_and_state_do_not_depend_on_the_cut(
    sizes: list[int], seed: int, begin: str, end: str, batch: int
) -> None:
    rng = np.random.default_rng(seed)
    params = LossLevelParams(9.6, 7.6, batch, 1.0, PARAMS.distribution)
    losses = clean_losses(sum(sizes) * batch, rng)
    if end == "drift":
        losses[len(losses) // 2 :] = drifted_losses(len(losses) - len(losses) // 2, rng)
    losses[rng.integers(0, len(losses), 3 if end == "infinite" else 0)] = np.inf
    state = LossLevelState.start(params)
    if begin == "warm-up":
        state = rebaseline(params, state)
    if begin in ("early", "old"):
        state, _ = run(params, state, clean_losses(17 if begin == "early" else 64 * 32, rng), batch)
    one, found = run(params, state, losses, batch)
    other, again = grouped(params, state, losses, sizes)
    assert found == again
    assert_same(one, other)


def test_a_quiet_stream_takes_the_short_way() -> None:
    losses = clean_losses(16 * BLOCK, np.random.default_rng(3))
    state = LossLevelState.start(PARAMS)
    numbers = np.searchsorted(PARAMS.distribution.knots, losses).reshape(-1, BLOCK)
    went = advance_blocks(state.evidence, state.table, numbers, losses.reshape(-1, BLOCK), 10.6)
    assert went is not None
    assert went[1].shape == (16,)
    assert_same(step_many(PARAMS, state, labelled(losses))[0], run(PARAMS, state, losses)[0])


def test_what_has_to_be_cut_down_or_does_not_end_a_block_is_left_to_single_steps() -> None:
    state, _ = step(PARAMS, LossLevelState.start(PARAMS), labelled(np.zeros(SIZE)))
    worst = np.full((2, BLOCK), len(PARAMS.distribution.knots))
    levels = np.full((2, BLOCK), PARAMS.distribution.levels[-1])
    assert advance_blocks(state.evidence, state.table, worst, levels, 10.6) is None
    high = Evidence(
        state.evidence.sums,
        np.full_like(state.evidence.climbs, 30.0),
        state.evidence.runs,
        state.evidence.losses,
        state.evidence.past,
    )
    assert advance_blocks(high, state.table, np.zeros((2, BLOCK), np.int64), 0 * levels, 10.6) is None
    odd, _ = step(PARAMS, state, labelled(np.zeros(5)))
    assert advance_blocks(odd.evidence, state.table, np.zeros((2, BLOCK), np.int64), 0 * levels, 10.6) is None


@pytest.mark.parametrize("count", [0, 31, 33])
def test_parts_of_batches_are_refused(count: int) -> None:
    with pytest.raises(DataError, match="whole batches of 32"):
        step_many(PARAMS, LossLevelState.start(PARAMS), labelled(np.zeros(count)))
