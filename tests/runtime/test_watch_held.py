"""What a fast stream brings is judged together, and as if it had not been held back."""

import pytest

from edge_agent.errors import StorageError
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_held import MOST_ROWS, Held, Shown
from edge_agent.runtime.watch_rules import rule_alone
from tests.runtime.bench import BATCH, GATEWAY, RULE, Parts, deny, permit, samples, served

WAIT_S = 0.2
GOOD, BAD = [False] * BATCH, [True] * BATCH


def holding(parts: Parts) -> DriftWatch:
    rules = rule_alone(RULE, parts.bundle)
    return DriftWatch(parts.agent_db, parts.outbox, parts.store, gateway=GATEWAY, rules=rules, together_s=WAIT_S)


def test_a_fast_stream_waits_and_a_slow_one_does_not(parts: Parts) -> None:
    watch = holding(parts)
    watch.consume(parts.label(0, GOOD), parts.active, now_s=10.0)
    assert (watch.standing.batches["loss-rise"], watch.behind) == (1, False)
    watch.consume(parts.label(4, GOOD), parts.active, now_s=10.05)
    watch.consume(parts.label(8, GOOD), parts.active, now_s=10.19)
    assert (watch.standing.batches["loss-rise"], watch.behind) == (1, True)
    watch.consume(parts.label(12, GOOD), parts.active, now_s=10.25)
    assert (watch.standing.batches["loss-rise"], watch.behind) == (4, False)
    watch.consume(parts.label(16, GOOD), parts.active, now_s=10.5)
    assert watch.standing.batches["loss-rise"] == 5


def test_a_call_that_brings_nothing_judges_what_is_held(parts: Parts) -> None:
    watch = holding(parts)
    watch.consume(parts.label(0, GOOD), parts.active, now_s=10.0)
    assert watch.consume(parts.label(4, BAD), parts.active, now_s=10.01) == 0
    assert watch.consume([], parts.active, now_s=10.02) == 1
    assert not watch.behind
    assert watch.consume([], parts.active, now_s=10.03) == 0


@pytest.mark.parametrize("now_s", [None, 9.0])
def test_where_the_time_says_nothing_all_is_judged_at_once(parts: Parts, now_s: float | None) -> None:
    watch = holding(parts)
    watch.consume(parts.label(0, GOOD), parts.active, now_s=10.0)
    watch.consume(parts.label(4, GOOD), parts.active, now_s=now_s)
    assert watch.standing.batches["loss-rise"] == 2


def test_what_is_held_at_an_activation_is_judged_by_what_served_it(parts: Parts) -> None:
    watch = holding(parts)
    watch.consume(parts.label(0, GOOD), parts.active, now_s=10.0)
    assert watch.consume(parts.label(4, BAD), parts.active, now_s=10.01) == 0
    parts.activate("b" * 64)
    assert watch.consume(parts.label(8, GOOD, weights="b" * 64), parts.active, now_s=10.02) == 1
    assert not watch.behind
    assert watch.standing.place.weights == "b" * 64
    assert not watch.open_flag


def test_a_kill_and_a_refusal_lose_no_labelled_sample_that_was_held(parts: Parts) -> None:
    watch = holding(parts)
    watch.consume(parts.label(0, GOOD), parts.active, now_s=10.0)
    watch.consume(parts.label(4, BAD), parts.active, now_s=10.01)
    killed = holding(parts)
    deny(parts.agent_db, "outbox")
    with pytest.raises(StorageError):
        killed.consume([], parts.active, now_s=11.0)
    with pytest.raises(StorageError):
        killed.consume(parts.label(8, BAD), parts.active, now_s=11.01)
    permit(parts.agent_db, "outbox")
    assert killed.consume([], parts.active, now_s=11.02) == 1
    assert killed.standing.batches["loss-rise"] == 3
    assert len(parts.flags()) == 1


def test_no_more_is_held_than_is_worth_it(parts: Parts) -> None:
    held = Held(WAIT_S)
    assert not held.may_wait(True, 10.0)
    rows = parts.label(0, GOOD)
    held.add(rows * (MOST_ROWS // BATCH - 1), [], parts.active)
    assert held.may_wait(True, 10.1)
    held.add(rows, [], parts.active)
    assert not held.may_wait(True, 10.1)
    assert len(held.taken()[0]) == MOST_ROWS
    assert not held
    batch = samples(0, MOST_ROWS)
    held.add([], [Shown(batch, served(parts.bundle, [False] * MOST_ROWS))], parts.active)
    assert not held.may_wait(True, 10.15)
