from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift import loss_rise
from edge_agent.drift.loss_rise import LossRiseParams, LossRiseState, published
from edge_agent.drift.observed import Labelled
from edge_agent.drift.policy import rise
from edge_agent.drift.policy.rise import RiseState
from edge_agent.errors import DataError

BATCH = 4
PARAMS = LossRiseParams(gamma=1.0, batch_size=BATCH, clip=3.0, warmup_batches=2, rearm_batches=2, safety=2.0)
RULES = [PARAMS, replace(PARAMS, patience=2), published(batch_size=BATCH, gamma=0.5)]
losses = st.lists(st.sampled_from([0.0, 0.7, 1.6, 5.0, np.inf]), min_size=1, max_size=30)


def batch(values: list[float]) -> Labelled:
    return Labelled(
        [str(k) for k in range(BATCH)],
        np.arange(BATCH, dtype=np.float64)[::-1],
        np.array(values),
        np.full(BATCH, np.nan),
    )


@pytest.mark.parametrize("params", RULES)
@given(levels=losses)
def test_it_alarms_when_the_rule_fires_and_while_that_holds(params: LossRiseParams, levels: list[float]) -> None:
    state, rule = RiseState.start(params), LossRiseState.start(params)
    for level in levels:
        state, finding = rise.step(params, state, batch([level] * BATCH))
        rule, verdict = loss_rise.step(params, rule, np.full(BATCH, level))
        assert state.rule == rule
        assert np.isfinite(finding.statistic)
        if verdict.fired:
            assert finding.alarm
            assert finding.began_samples == BATCH
        elif not verdict.held:
            assert not finding.alarm


@given(levels=losses, activations=st.sets(st.integers(0, 29)))
def test_the_state_comes_back_bit_for_bit_and_keeps_its_size(levels: list[float], activations: set[int]) -> None:
    state = RiseState.start(PARAMS)
    sizes = {name: array.shape for name, array in state.to_arrays().items()}
    for place, level in enumerate(levels):
        if place in activations:
            state = rise.rebaseline(PARAMS, state)
        state, _ = rise.step(PARAMS, state, batch([level] * BATCH))
        arrays = state.to_arrays()
        assert {name: array.shape for name, array in arrays.items()} == sizes
        assert RiseState.from_arrays(PARAMS, arrays) == state


def test_a_change_inside_a_batch_is_dated_by_the_samples_times() -> None:
    state, _ = rise.step(PARAMS, RiseState.start(PARAMS), batch([0.0] * BATCH))
    _, finding = rise.step(PARAMS, state, batch([3.0, 3.0, 3.0, 0.0]))
    assert finding.alarm
    assert finding.began_samples == 3, "the times run backwards: the last of the batch was measured first"
    assert [(one.name, one.before, one.now) for one in finding.attributions] == [("loss", 0.0, 2.25)]


def test_in_a_warm_up_nothing_alarms() -> None:
    state = rise.rebaseline(PARAMS, RiseState.start(PARAMS))
    for level in (0.0, 3.0):
        state, finding = rise.step(PARAMS, state, batch([level] * BATCH))
        assert not finding.alarm


def test_arrays_of_other_constants_are_refused_by_name() -> None:
    arrays = RiseState.start(PARAMS).to_arrays()
    with pytest.raises(DataError, match="previous"):
        RiseState.from_arrays(replace(PARAMS, lookback=3), arrays)
