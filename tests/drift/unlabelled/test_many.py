"""Several batches at once are bit for bit what they are one by one, however the stream is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled import LabelFreeState, rebaseline, step, step_many
from edge_agent.drift.unlabelled.monitor import judge_many
from edge_agent.errors import DataError
from tests.drift.unlabelled.made import BATCH, observed, params, rows

MONITOR = params()


def assert_same(one: LabelFreeState, other: LabelFreeState) -> None:
    for name, array in one.to_arrays().items():
        assert array.tobytes() == other.to_arrays()[name].tobytes(), name


def one_by_one(state: LabelFreeState, seen: Observed) -> tuple[LabelFreeState, list[Finding]]:
    found = []
    for start in range(0, len(seen), BATCH):
        state, finding = step(MONITOR, state, seen.part(start, start + BATCH))
        found.append(finding)
    return state, found


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    seed=st.integers(0, 999),
    begin=st.sampled_from(["start", "other weights", "other weights after an alarm"]),
    what=st.sampled_from(["calm", "drift", "missing", "never there"]),
)
@settings(max_examples=12, deadline=None)
def test_findings_and_state_do_not_depend_on_the_cut(sizes: list[int], seed: int, begin: str, what: str) -> None:
    rng = np.random.default_rng(seed)
    readings = rows(sum(sizes) * BATCH, 6, rng)
    half = len(readings) // 2
    if what == "drift":
        readings[half:, 2] += 4.0 * readings[:, 2].std()
    if what == "missing":
        readings[rng.integers(0, len(readings), 3), rng.integers(0, 6, 3)] = np.nan
    if what == "never there":
        readings[half:, 1] = np.nan
    seen = observed(readings)
    state = LabelFreeState.start(MONITOR)
    if begin != "start":
        moved = rows(3 * BATCH, 6, rng) + (40.0 if "alarm" in begin else 0.0)
        state = rebaseline(MONITOR, one_by_one(state, observed(moved))[0])
    one, found = one_by_one(state, seen)
    other, again, first = state, [], 0
    for size in sizes:
        other, some = step_many(MONITOR, other, seen.part(first, first + size * BATCH))
        again += some
        first += size * BATCH
    assert found == again
    assert_same(one, other)


def test_a_drift_is_explained_at_each_batch_of_a_group() -> None:
    rng = np.random.default_rng(4)
    readings = rows(8 * BATCH, 6, rng)
    readings[3 * BATCH :, 2] += 4.0 * readings[:, 2].std()
    _, found = step_many(MONITOR, LabelFreeState.start(MONITOR), observed(readings))
    assert [finding.alarm for finding in found] == [False] * 3 + [True] * 5
    assert [finding.began_samples for finding in found[3:]] == [BATCH * count for count in range(1, 6)]
    assert all(finding.attributions[0].name == "x2" for finding in found[3:])


@pytest.mark.parametrize("learning", [False, True])
def test_what_is_judged_is_explained_when_that_is_asked_for_and_decided_before(learning: bool) -> None:
    rng = np.random.default_rng(4)
    readings = rows(24 * BATCH, 6, rng)
    readings[19 * BATCH :, 2] += 4.0 * readings[:, 2].std()
    state = LabelFreeState.start(MONITOR)
    state = rebaseline(MONITOR, state) if learning else state
    following, found = step_many(MONITOR, state, observed(readings))
    judged = judge_many(MONITOR, state, observed(readings))
    assert_same(following, judged.state)
    assert [one.alarm for one in judged.findings] == [one.alarm for one in found] == [False] * 19 + [True] * 5
    assert all(one.attributions == () for one in judged.findings)
    assert [judged.explained(place) for place in reversed(range(24))] == found[::-1]


@pytest.mark.parametrize("count", [0, BATCH - 1, BATCH + 1])
def test_parts_of_batches_are_refused(count: int) -> None:
    seen = observed(rows(count, 6, np.random.default_rng(0)))
    with pytest.raises(DataError, match="a batch has 32"):
        step_many(MONITOR, LabelFreeState.start(MONITOR), seen)
