import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseState, published
from edge_agent.drift.policy.rise import RiseState
from edge_agent.errors import StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.packing import decoded
from edge_agent.runtime.watch_standing import WATCH
from edge_agent.wire.blobs import sha256_hex
from tests.runtime.bench import BATCH, GATEWAY, RULE, Parts, deny, permit

LOW, HIGH = [False] * BATCH, [True] * BATCH
NEW = "c" * 64


def stored(parts: Parts) -> tuple[dict[str, object], LossRiseState]:
    rows = {name: (place, state) for name, place, state in parts.agent_db.query("SELECT name, place, state FROM watch")}
    state = RiseState.from_arrays(parts.rule, decoded(rows[MONITOR_NAME][1]))
    return json.loads(rows[WATCH][0]), state.rule


def test_a_rise_raises_one_flag_that_says_where_it_began(parts: Parts, bundle: Bundle) -> None:
    assert parts.feed(0, LOW * 2) == 0
    assert not parts.watch.open_flag
    assert parts.feed(8, [False, True, True, True]) == 1
    (flag,) = parts.flags()
    assert (flag.monitor, flag.firing, flag.bundle, flag.weights) == (MONITOR_NAME, 1, bundle.digest, "a" * 64)
    assert (flag.first_drifted_sample, flag.first_drifted_time_s) == ("s9", 9.0)
    assert flag.statistic > flag.threshold == RULE.gamma
    assert flag.trainable_samples == 3
    assert (parts.watch.training_from, parts.watch.open_flag, parts.watch.firings) == ("s9", True, 1)


def test_a_drift_is_flagged_once_while_it_lasts(parts: Parts) -> None:
    assert parts.feed(0, LOW + HIGH * 6) == 1
    assert len(parts.flags()) == 1


def test_rows_that_fill_no_batch_wait(parts: Parts) -> None:
    parts.feed(0, LOW + LOW[:3])
    assert (parts.watch.cursor, stored(parts)[1].batches) == (4, 1)
    parts.feed(7, [False])
    assert (parts.watch.cursor, stored(parts)[1].batches) == (8, 2)


def test_the_flags_id_comes_from_gateway_monitor_epoch_and_firing(parts: Parts) -> None:
    parts.feed(0, LOW + HIGH + LOW * 3 + HIGH)
    epoch = stored(parts)[0]["epoch"]
    assert [flag.flag_id for flag in parts.flags()] == [
        sha256_hex(f"{GATEWAY}|{MONITOR_NAME}|{epoch}|{firing}".encode()) for firing in (1, 2)
    ]


@pytest.mark.parametrize(("table", "what"), [("outbox", "INSERT"), ("watch", "UPDATE")])
def test_state_and_flag_commit_together_or_not_at_all(parts: Parts, table: str, what: str) -> None:
    parts.feed(0, LOW)
    before = stored(parts)
    deny(parts.agent_db, table, what)
    with pytest.raises(StorageError, match="denied"):
        parts.feed(4, HIGH)
    assert stored(parts) == before
    assert parts.flags() == []
    assert (parts.watch.firings, parts.watch.open_flag, parts.watch.cursor) == (0, False, 4)


def test_a_flag_the_disk_refused_is_raised_when_it_is_back(parts: Parts) -> None:
    parts.feed(0, LOW)
    deny(parts.agent_db, "outbox")
    for first in (4, 8):
        with pytest.raises(StorageError):
            parts.feed(first, HIGH)
    permit(parts.agent_db, "outbox")
    assert parts.watch.consume([], parts.active) == 1
    assert parts.watch.consume([], parts.active) == 0
    assert [(flag.firing, flag.first_drifted_sample) for flag in parts.flags()] == [(1, "s4")]
    assert parts.watch.cursor == 12


def test_a_restart_between_refusal_and_return_gives_the_same_flag(parts: Parts) -> None:
    parts.feed(0, LOW)
    epoch = stored(parts)[0]["epoch"]
    deny(parts.agent_db, "outbox")
    with pytest.raises(StorageError):
        parts.feed(4, HIGH)
    permit(parts.agent_db, "outbox")
    again = parts.restarted()
    assert again.watch.consume([], again.active) == 1
    assert [flag.flag_id for flag in again.flags()] == [sha256_hex(f"{GATEWAY}|{MONITOR_NAME}|{epoch}|1".encode())]
    third = again.restarted()
    assert third.watch.consume([], third.active) == 0
    assert len(third.flags()) == 1
    assert (third.watch.training_from, third.watch.open_flag) == ("s4", True)
    third.close()


@settings(max_examples=20, deadline=None)
@given(
    stream=st.lists(st.sampled_from([False, False, True]), min_size=BATCH, max_size=60).map(
        lambda wrong: [value for value in wrong for _ in range(2)]
    ),
    pieces=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=40),
)
def test_restarts_in_the_middle_of_batches_change_nothing(
    bundle: Bundle, stream: list[bool], pieces: list[tuple[int, bool]]
) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        whole, broken = Parts(Path(one), bundle), Parts(Path(other), bundle)
        whole.feed(0, stream)
        first = 0
        for size, restarts in [*pieces, (len(stream), False)]:
            broken.feed(first, stream[first : first + size])
            first = min(first + size, len(stream))
            if restarts:
                broken = broken.restarted()
        assert stored(broken)[1] == stored(whole)[1]
        assert outline(broken) == outline(whole)
        assert len({flag.flag_id for flag in broken.flags()}) == len(broken.flags())
        whole.close()
        broken.close()


def outline(parts: Parts) -> list[tuple[int, str, float]]:
    return [(flag.firing, flag.first_drifted_sample, flag.statistic) for flag in parts.flags()]


def test_a_power_cut_that_cost_the_samples_last_labels_costs_no_later_flag(parts: Parts) -> None:
    parts.feed(0, LOW)
    parts.close()
    older = (parts.path / "samples.db").read_bytes()
    newer = Parts(parts.path, parts.bundle)
    newer.feed(4, LOW)
    newer.close()
    (parts.path / "samples.db").write_bytes(older)
    again = Parts(parts.path, parts.bundle)
    assert again.watch.cursor == 8
    again.store.resume_after(again.watch.cursor)
    assert again.feed(20, HIGH) == 1
    again.close()


def test_rows_of_other_weights_are_passed_over(parts: Parts) -> None:
    parts.feed(0, LOW)
    assert parts.feed(4, HIGH * 3, weights=NEW) == 0
    assert (stored(parts)[1].batches, parts.flags()) == (1, [])


def test_rows_that_were_judged_are_not_judged_again(parts: Parts) -> None:
    rows = parts.label(0, LOW)
    for _ in range(2):
        parts.watch.consume(rows, parts.active)
    assert stored(parts)[1].batches == 1


def test_an_activation_rebaselines_and_ends_the_flag(parts: Parts) -> None:
    assert parts.feed(0, LOW + HIGH) == 1
    parts.activate(NEW)
    assert parts.feed(8, LOW[:3], weights=NEW) == 0
    place, state = stored(parts)
    assert (place["weights"], place["open_flag"], place["drifted_from"]) == (NEW, False, "s4")
    assert (state.epoch, state.warmup_left, state.previous, state.held_loss) == (1, RULE.warmup_batches, (), None)
    assert not parts.watch.open_flag
    assert parts.feed(11, LOW[:1] + LOW, weights=NEW) == 0
    assert parts.feed(24, HIGH, weights=NEW) == 1
    assert [(flag.firing, flag.weights_version) for flag in parts.flags()] == [(1, 1), (2, 2)]


def test_an_open_flag_is_said_once_to_each_start_of_the_bridge(parts: Parts) -> None:
    """A bridge whose store went back has lost what it had acknowledged since."""
    assert not parts.watch.bridge_started("boot 1"), "there is nothing to say"
    parts.feed(0, LOW + HIGH)
    (raised,) = parts.flags()
    parts.outbox.acknowledge(parts.outbox.epoch, [(1, 10)])
    assert parts.watch.bridge_started("boot 2")
    assert not parts.watch.bridge_started("boot 2")
    assert parts.flags() == [raised]
    again = parts.restarted()
    again.outbox.acknowledge(again.outbox.epoch, [(1, 10)])
    assert again.watch.bridge_started("boot 2"), "the agent does not know what was said before its start"
    assert again.flags() == [raised]
    again.close()


def test_a_flag_that_an_activation_has_answered_is_not_said_again(parts: Parts) -> None:
    parts.feed(0, LOW + HIGH)
    parts.activate(NEW)
    parts.feed(8, LOW, weights=NEW)
    assert not parts.watch.bridge_started("boot 1")


def test_an_open_flag_that_the_disk_refused_is_said_when_it_is_back(parts: Parts) -> None:
    parts.feed(0, LOW + HIGH)
    deny(parts.agent_db, "outbox", "INSERT")
    with pytest.raises(StorageError):
        parts.watch.bridge_started("boot 1")
    permit(parts.agent_db, "outbox", "INSERT")
    assert parts.watch.bridge_started("boot 1")


def test_what_waited_for_a_full_batch_does_not_mix_into_the_weights_that_come_back(parts: Parts) -> None:
    parts.feed(0, LOW + [True] * 3)
    parts.activate(NEW)
    parts.feed(7, LOW[:1], weights=NEW)
    parts.activate("a" * 64)
    again = parts.restarted()
    again.feed(8, LOW)
    assert stored(again)[1].previous[0] < 0.01
    again.close()


def test_late_labels_of_the_weights_before_are_passed_over_after_an_activation(parts: Parts) -> None:
    parts.feed(0, LOW)
    parts.activate(NEW)
    parts.feed(4, HIGH)
    parts.feed(8, LOW, weights=NEW)
    assert stored(parts)[1].previous[0] < 0.01


def test_a_refused_activation_is_made_up_for(parts: Parts) -> None:
    parts.feed(0, LOW + HIGH)
    parts.activate(NEW)
    deny(parts.agent_db, "watch", "UPDATE")
    with pytest.raises(StorageError):
        parts.feed(8, LOW * 2, weights=NEW)
    assert parts.watch.open_flag
    permit(parts.agent_db, "watch", "UPDATE")
    parts.watch.consume([], parts.active)
    state = stored(parts)[1]
    assert (state.epoch, state.batches, state.warmup_left) == (1, 4, 0)


@pytest.mark.parametrize("rule", [published(batch_size=BATCH, gamma=0.25), replace(RULE, gamma=3.0)])
def test_another_rule_without_an_activation_starts_anew(parts: Parts, rule: object) -> None:
    assert isinstance(rule, type(RULE))
    parts.feed(0, LOW + HIGH)
    again = parts.restarted(rule=rule)
    _, state = stored(again)
    assert (state.gamma, state.previous, state.warmup_left) == (rule.gamma, (), rule.warmup_batches)
    assert (again.watch.firings, again.watch.open_flag) == (1, True)
    same = again.restarted(rule=rule)
    assert stored(same)[1] == state
    same.close()


def test_another_rule_on_a_store_that_never_judged_needs_no_warm_up(parts: Parts) -> None:
    rule = replace(RULE, gamma=3.0)
    again = parts.restarted(rule=rule)
    assert stored(again)[1] == LossRiseState.start(rule)
    again.close()


@pytest.mark.parametrize("column", ["place", "state"])
@pytest.mark.parametrize(
    "text", ["", "[]", '{"epoch": 1}', '{"of a newer version": 1}', '{"epoch": "e", "weights": "w", "flag": "{}"}']
)
def test_a_state_that_cannot_be_read_is_begun_anew_under_another_epoch(parts: Parts, column: str, text: str) -> None:
    parts.feed(0, LOW + HIGH)
    epoch = stored(parts)[0]["epoch"]
    with parts.agent_db.transaction():
        parts.agent_db.execute(f"UPDATE watch SET {column} = ?", (text,))
    again = parts.restarted()
    assert stored(again)[0]["epoch"] != epoch
    assert again.watch.consume([], again.active) == 1
    assert len({flag.flag_id for flag in again.flags()}) == 2
    again.close()


def test_a_batch_that_cannot_be_judged_is_counted_and_passed_over(parts: Parts) -> None:
    parts.feed(0, LOW)
    rows = parts.label(4, LOW)
    parts.watch.consume([row._replace(output=row.output[:1]) for row in rows], parts.active)
    assert (parts.watch.unjudged_batches, parts.watch.cursor) == (1, 8)
    assert parts.feed(8, HIGH) == 1


@settings(max_examples=15, deadline=None)
@given(losses=st.lists(st.booleans(), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_what_arrives_together_is_judged_as_if_it_had_come_bit_by_bit(
    bundle: Bundle, losses: list[bool], cuts: list[int]
) -> None:
    found = []
    for ends in ([len(losses)], sorted({min(cut, len(losses)) for cut in cuts} | {len(losses)})):
        with TemporaryDirectory() as folder:
            parts, start, flags = Parts(Path(folder), bundle), 0, 0
            for end in ends:
                flags += parts.feed(start, losses[start:end])
                start = end
            place, state = stored(parts)
            raised = [(flag.firing, flag.first_drifted_sample, flag.statistic) for flag in parts.flags()]
            found.append((flags, raised, place["cursor"], place["drifted_from"], state, parts.watch.standing.findings))
            parts.close()
    assert found[0] == found[1]
