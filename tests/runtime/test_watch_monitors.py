"""All monitors of a bundle at work together: what is served, what labels come, one verdict."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.policy.season import SeasonParams
from edge_agent.drift.policy.verdict import PolicyState
from edge_agent.errors import StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch_rules import rule_alone
from edge_agent.runtime.watch_status import drift_status
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import FLAG_CAP_BYTES
from tests.runtime.bench import BATCH, RULE, Parts, deny, permit
from tests.runtime.watched import NAMES, OWN, SIZE, drawn, labelled, rules_of, served_of
from tests.runtime.watched_gateway import SHIFT, Gateway

STATE_CAP_BYTES = 256 * 1024


def test_a_shift_of_the_inputs_is_a_warning_while_labels_say_that_the_loss_is_fine(gateway: Gateway) -> None:
    assert gateway.serve(20 * SIZE, label=True) == 0
    assert gateway.serve(12 * SIZE, moved=SHIFT, label=True, portion=SIZE) == 0
    assert gateway.verdict == "warning"
    assert "only warns: labels come, and the loss decides" in drift_status(gateway.watch).why


def test_without_labels_the_same_shift_is_flagged_with_its_evidence(gateway: Gateway) -> None:
    gateway.serve(30 * SIZE)
    assert gateway.serve(12 * SIZE, moved=SHIFT, portion=SIZE) == 1
    (flag,) = gateway.flags
    assert (flag.monitor, flag.firing, flag.weights, flag.severity_by) == ("label-free", 1, OWN, "statistic")
    assert flag.statistic > flag.threshold
    assert 0 < (flag.severity or 0) <= 1
    assert [test.monitor for test in flag.tests] == ["label-free"]
    assert flag.attributions[0].name == NAMES[0]
    assert flag.attributions[0].now - flag.attributions[0].before == pytest.approx(SHIFT, abs=1.0)
    assert abs(flag.first_drifted_time_s - 30 * SIZE) <= 2 * SIZE
    assert flag.samples[0] == flag.first_drifted_sample == gateway.watch.training_from
    assert len(encode(flag)) <= FLAG_CAP_BYTES
    assert gateway.watch.open_flag


def test_labels_that_dry_up_leave_the_alarm_to_the_monitor_without_labels(gateway: Gateway) -> None:
    gateway.serve(10 * SIZE, label=True)
    assert gateway.serve(400, moved=SHIFT, portion=SIZE) == 0
    assert gateway.verdict == "warning"
    assert gateway.serve(2 * SIZE, moved=SHIFT, portion=SIZE) == 1


@pytest.mark.parametrize(("setting", "flags"), [("always", 1), ("never", 0), ("off", 0)])
def test_the_operator_says_whether_an_alarm_without_labels_flags(
    tmp_path: Path, whole: Bundle, setting: str, flags: int
) -> None:
    one = Gateway(tmp_path, whole, rules_of(whole, label_free=setting))
    assert one.serve(12 * SIZE, moved=SHIFT, portion=SIZE) == flags
    assert ("label-free" in one.watch.standing.findings) is (setting != "off")
    one.parts.close()


def test_a_loss_that_rises_while_the_inputs_stay_is_flagged_as_another_concept(gateway: Gateway) -> None:
    gateway.serve(10 * SIZE, label=True)
    x, outputs = drawn(6 * SIZE, 3)
    wrong = (outputs.argmax(axis=1) + 1) % 3
    batch, made = served_of(gateway.bundle, gateway.first, x, outputs)
    gateway.parts.store.add(batch, made, 0.0)
    rows = gateway.parts.store.label(labelled(gateway.first, wrong), 0.0)
    assert gateway.watch.consume(rows, gateway.parts.active, [(batch, made)]) == 1
    (flag,) = gateway.flags
    assert (flag.monitor, flag.shift, flag.severity_by) == ("loss-level", "concept", "loss")
    assert [test.monitor for test in flag.tests] == ["loss-level", "label-free"]
    assert gateway.first - SIZE <= flag.first_drifted_time_s <= gateway.first + SIZE


@settings(max_examples=8, deadline=None)
@given(portions=st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_portions_do_not_matter(whole: Bundle, portions: list[int]) -> None:
    """Served samples alone: between them and labels there is an order, which portions do change."""
    found = []
    for cut in (portions, [sum(portions)]):
        with TemporaryDirectory() as folder:
            one = Gateway(Path(folder), whole, rules_of(whole, label_free="always"))
            x, outputs = drawn(sum(portions), 5, moved=SHIFT / 4)
            start = 0
            for count in cut:
                rows = slice(start, start + count)
                part = served_of(whole, start, x[rows], outputs[rows])
                one.parts.store.add(*part, 0.0)
                one.watch.consume([], one.parts.active, [part])
                start += count
            at = one.watch.standing
            arrays = {name: {key: a.tobytes() for key, a in s.to_arrays().items()} for name, s in at.states.items()}
            found.append((arrays, at.policy, dict(at.findings), dict(at.batches), len(one.flags)))
            one.parts.close()
    assert found[0] == found[1]


def test_a_restart_finds_every_state_bit_for_bit(gateway: Gateway) -> None:
    for moved, label in ((0.0, True), (SHIFT, False), (0.0, False), (0.0, True)):
        gateway.serve(7 * SIZE + 3, moved=moved, label=label, portion=SIZE + 1)
        before, at = gateway.rows(), gateway.watch.standing
        gateway.restart()
        again = gateway.watch.standing
        assert gateway.rows() == before
        assert again.policy == at.policy
        assert dict(again.findings) == dict(at.findings)
        stored = {name: state.to_arrays() for name, state in at.states.items() if name != "arrivals"}
        for name, arrays in stored.items():
            found = again.states[name].to_arrays()
            assert {key: array.tobytes() for key, array in found.items()} == {
                key: array.tobytes() for key, array in arrays.items()
            }


def test_what_is_stored_has_one_size(gateway: Gateway) -> None:
    sizes = []
    for _ in range(3):
        gateway.serve(20 * SIZE, moved=SHIFT, label=True)
        rows = gateway.parts.agent_db.query("SELECT name, length(state) FROM watch WHERE name != 'watch' ORDER BY name")
        sizes.append(rows)
    assert sizes[0] == sizes[1] == sizes[2]
    assert sum(size for _, size in sizes[0]) < STATE_CAP_BYTES
    (place,) = gateway.parts.agent_db.query("SELECT length(place) + length(state) FROM watch WHERE name = 'watch'")
    assert place[0] < 8192


def test_an_activation_begins_every_monitor_anew(gateway: Gateway) -> None:
    gateway.serve(30 * SIZE)
    assert gateway.serve(6 * SIZE + 5, moved=SHIFT, portion=SIZE) == 1
    gateway.parts.activate("b" * 64, 2)
    gateway.serve(1, moved=SHIFT)
    at = gateway.watch.standing
    assert (at.policy, dict(at.findings), at.facts.rows_since) == (PolicyState(flags=1), {}, 1)
    assert not gateway.watch.open_flag
    assert set(gateway.watch.waiting.values()) <= {0, 1}, "what was served by the weights before waits no more"
    assert gateway.serve(20 * SIZE, moved=SHIFT, portion=SIZE) == 0, "the weights were made for what the stream is now"


def test_served_samples_whose_commit_failed_are_judged_when_the_disk_is_back(gateway: Gateway) -> None:
    gateway.serve(30 * SIZE)
    deny(gateway.parts.agent_db, "outbox")
    with pytest.raises(StorageError):
        gateway.serve(6 * SIZE, moved=SHIFT)
    assert gateway.flags == []
    permit(gateway.parts.agent_db, "outbox")
    assert gateway.watch.consume([], gateway.parts.active) == 1
    assert gateway.watch.standing.batches["label-free"] == 36


def test_a_season_is_learned_and_then_no_drift_any_more(tmp_path: Path, bundle: Bundle) -> None:
    """Days of two batches: wrong by night, right by day; in the end wrong by day too."""
    night, day = [True] * BATCH, [False] * BATCH
    flags = {}
    for season in (None, SeasonParams(4.0 * BATCH, 2)):
        path = tmp_path / str(season is None)
        path.mkdir()
        rules = replace(rule_alone(RULE, bundle), season=season)
        parts = Parts(path, bundle, rules=rules)
        raised = [parts.feed(number * 4 * BATCH, day * 2 + night * 2) for number in range(14)]
        assert raised[0] == 1
        last = parts.feed(14 * 4 * BATCH, [*night * 4])
        flags[season is not None] = (sum(raised[8:]), last)
        parts.close()
    assert flags == {False: (6, 0), True: (0, 1)}


def test_a_gateway_may_learn_what_is_normal_there(tmp_path: Path, whole: Bundle) -> None:
    one = Gateway(tmp_path, whole, rules_of(whole, label_free="always", baseline="gateway"))
    one.serve(SIZE, label=True)
    states = {name: state.to_arrays() for name, state in one.watch.standing.states.items()}
    level, free = states["loss-level"]["counters"].tolist(), states["label-free"]["counts"].tolist()
    assert (level[:3], free[0]) == ([7 * SIZE, SIZE, 1], 15), "7 and 15 batches of the warm-ups are left"
    one.parts.close()


def test_a_batch_of_another_shape_is_named_and_passed_over(gateway: Gateway) -> None:
    batch, made = served_of(gateway.bundle, 0, *drawn(SIZE, 1))
    gateway.watch.consume([], gateway.parts.active, [(batch, replace(made, outputs=made.outputs[:, :2]))])
    assert gateway.watch.unjudged_batches == 1
    assert "label-free" in gateway.watch.problems
    assert "label-free" in drift_status(gateway.watch).monitors[1].problem
    gateway.serve(SIZE)
    assert gateway.watch.problems == {}
