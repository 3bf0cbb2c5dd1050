"""The draw is the same for the same samples and labels, in whatever order and however often they are told."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.arrivals import (
    BINS,
    PER_PERIOD,
    PERIODS,
    ArrivalsParams,
    ArrivalsState,
    calibrate_arrivals,
    note_labelled,
    note_labelled_at,
    note_outputs,
    note_served,
    output_cells,
    rebaseline,
)
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

PARAMS = ArrivalsParams(mature_s=400.0, level=1e-3, classes=3, edges=(0.4, 0.5, 0.6))


def _same(left: ArrivalsState, right: ArrivalsState) -> bool:
    pairs = zip(left.to_arrays().values(), right.to_arrays().values(), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


def _told(
    order: list[int], chunk: int, ids: list[str], times: NDArray[np.float64], cells: NDArray[np.int16]
) -> ArrivalsState:
    state = ArrivalsState.start(PARAMS)
    for start in range(0, len(order), chunk):
        rows = order[start : start + chunk]
        state = note_served(PARAMS, state, [ids[row] for row in rows], times[rows], cells[rows])
    return state


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), span_s=st.sampled_from([50.0, 1000.0, 3000.0]))
def test_any_order_and_repetition_of_samples_and_labels_gives_the_same_bytes(seed: int, span_s: float) -> None:
    rng = np.random.default_rng(seed)
    ids, times = [f"s{n}" for n in range(400)], rng.uniform(0, span_s, 400)
    cells = rng.integers(0, 12, 400).astype(np.int16)
    once = _told(list(range(400)), 400, ids, times, cells)
    twice = _told([*rng.permutation(400).tolist(), *rng.integers(0, 400, 200).tolist()], 37, ids, times, cells)
    assert _same(once, twice)
    labelled = rng.choice(400, 150, replace=False)
    delays = np.where(rng.random(150) < 0.1, np.nan, rng.exponential(100.0, 150))
    once = note_labelled(PARAMS, once, [ids[row] for row in labelled], delays)
    again = [*rng.permutation(150).tolist(), *rng.integers(0, 150, 60).tolist()]
    for start in range(0, len(again), 23):
        rows = again[start : start + 23]
        twice = note_labelled(PARAMS, twice, [ids[labelled[row]] for row in rows], delays[rows])
    assert _same(once, twice)


def test_labels_between_servings_leave_what_labels_after_them_do() -> None:
    ids, times, cells = [f"s{n}" for n in range(300)], np.linspace(0, 90, 300), np.zeros(300, np.int16)
    late = note_labelled(PARAMS, _told(list(range(300)), 300, ids, times, cells), ids[:100], np.full(100, 5.0))
    early = note_labelled(PARAMS, _told(list(range(100)), 100, ids, times, cells), ids[:100], np.full(100, 5.0))
    early = note_served(PARAMS, early, ids[100:], times[100:], cells[100:])
    assert _same(late, early)


def test_memory_is_fixed_and_the_newest_periods_stay() -> None:
    state = ArrivalsState.start(PARAMS)
    size = sum(array.nbytes for array in state.to_arrays().values())
    for period in range(PERIODS + 5):
        times = np.full(200, (period + 0.5) * PARAMS.period_s)
        state = note_served(PARAMS, state, [f"{period}-{n}" for n in range(200)], times, np.zeros(200))
    assert sum(array.nbytes for array in state.to_arrays().values()) == size < 40_000
    assert sorted(state.period) == list(range(5, PERIODS + 5))
    old = note_served(PARAMS, state, ["late"], np.array([0.0]), np.zeros(1))
    assert _same(old, state)


def test_the_draw_of_a_period_is_a_fair_one() -> None:
    # 2000 samples, every tenth in cell 4: of 128 drawn, 12.8 expected; seed-free, the hash is fixed
    cells = np.where(np.arange(2000) % 10 == 0, 4, 0).astype(np.int16)
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), [f"x{n}" for n in range(2000)], np.zeros(2000), cells)
    assert 5 <= (state.cells[0] == 4).sum() <= 22
    assert len(set(state.hashes[0].tolist())) == PER_PERIOD


def test_cells_are_class_and_confidence() -> None:
    logits = np.log(np.array([[0.34, 0.33, 0.33], [0.2, 0.7, 0.1], [0.1, 0.35, 0.55]]))
    assert output_cells(PARAMS, logits).tolist() == [0, 1 * BINS + 3, 2 * BINS + 2]
    assert output_cells(PARAMS, np.array([[np.nan, 0.0, 1.0]])).tolist() == [0]
    regression = ArrivalsParams(400.0, 1e-3, None, (0.0, 1.0, 2.0))
    assert output_cells(regression, np.array([[-1.0], [0.5], [9.0], [np.inf]])).tolist() == [0, 1, 3, 0]


def test_times_that_are_none_are_passed_over() -> None:
    times = np.array([np.nan, -1.0, np.inf, 3.0])
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), list("abcd"), times, np.zeros(4))
    assert (state.hashes != 2**64 - 1).sum() == 1
    assert _same(note_served(PARAMS, state, [], np.zeros(0), np.zeros(0)), state)
    assert _same(note_labelled(PARAMS, state, ["unheard of"], np.zeros(1)), state)


def test_labels_told_by_the_running_time_have_the_delay_from_their_serving() -> None:
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ["a", "b"], np.array([10.0, 20.0]), np.zeros(2))
    state = note_labelled_at(PARAMS, state, ["b", "nobody"], 50.0)
    assert sorted(state.delays_s[0][:2].tolist()) == [30.0, np.inf]


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_few_labels_at_a_time_and_outputs_for_cells_give_the_same_bytes(seed: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    ids = [f"s{number}" for number in range(300)]
    outputs, times = rng.normal(size=(300, 3)), rng.uniform(0, 250, 300)
    outputs[rng.integers(0, 300, 20), rng.integers(0, 3, 20)] = rng.choice([np.nan, np.inf, -np.inf], 20)
    start = ArrivalsState.start(PARAMS)
    whole = note_served(PARAMS, start, ids, times, output_cells(PARAMS, outputs))
    parts = start
    for first in range(0, 300, chunk):
        rows = slice(first, first + chunk)
        parts = note_outputs(PARAMS, parts, ids[rows], times[rows], outputs[rows])
    assert _same(whole, parts)
    told = [*rng.permutation(ids).tolist(), "nobody", ids[0], ids[0]]
    one_by_one = parts
    for name in told:
        one_by_one = note_labelled_at(PARAMS, one_by_one, [name], 300.0)
    assert _same(note_labelled_at(PARAMS, whole, told, 300.0), one_by_one)


def test_state_and_params_come_back_as_they_were() -> None:
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ["a", "b"], np.array([1.0, 2.0]), np.array([3, 4]))
    assert _same(ArrivalsState.from_arrays(PARAMS, state.to_arrays()), state)
    spec = MonitorSpec.model_validate_json(PARAMS.to_spec().model_dump_json(by_alias=True))
    assert ArrivalsParams.from_spec(spec, PARAMS.to_arrays()) == PARAMS
    assert _same(rebaseline(PARAMS, state), ArrivalsState.start(PARAMS))
    with pytest.raises(DataError, match="hashes"):
        ArrivalsState.from_arrays(PARAMS, {**state.to_arrays(), "hashes": np.zeros(3, np.uint64)})
    with pytest.raises(DataError, match="edges"):
        ArrivalsParams.from_spec(spec, {})


def test_bins_come_from_the_reference() -> None:
    outputs = np.linspace(-1, 1, 101)[:, None]
    seen = Observed([str(n) for n in range(101)], np.zeros(101), np.zeros((101, 1)), outputs)
    zeros = np.zeros(101, np.int64)
    params = calibrate_arrivals(Reference(seen, np.zeros(101), np.zeros(101), None, zeros, ("x",), ("",)), mature_s=60)
    assert params.edges == pytest.approx((-0.8, -0.5, 0.0))
    assert params.period_s == 15.0
