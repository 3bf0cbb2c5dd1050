"""All monitors of a bundle at work together: what is served, what labels come, one verdict."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseState, step
from edge_agent.drift.policy.season import SeasonParams
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import PolicyState, Role
from edge_agent.errors import DataError, StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.drift_status import DriftStatus
from edge_agent.runtime.packing import encoded
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import WatchRules, rule_alone
from edge_agent.runtime.watch_status import drift_status
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import FLAG_CAP_BYTES, FlagEvent, SensorFaultEvent
from tests.runtime.bench import BATCH, GATEWAY, RULE, Parts, deny, permit
from tests.runtime.watched import NAMES, OWN, SIZE, drawn, labelled, labels_of, rules_of, served_of, watched_bundle

SHIFT = 4.0
STATE_CAP_BYTES = 256 * 1024
OTHERS = "b" * 64


@pytest.fixture(scope="module")
def whole(bundle: Bundle) -> Bundle:
    return watched_bundle(bundle)


class Gateway:
    """The parts of a gateway on a bundle with all monitors."""

    def __init__(self, path: Path, bundle: Bundle, rules: WatchRules) -> None:
        self.bundle = bundle
        self.parts = Parts(path, bundle, rules=rules)
        self.parts.activate(OWN, 1)
        self.now_s = 0.0
        self.first = 0

    def serve(
        self,
        count: int,
        *,
        moved: float = 0.0,
        seed: int = 7,
        label: bool = False,
        portion: int = 999,
        wrong: bool = False,
    ) -> int:
        """Samples as the recorder tells of them; ``portion`` at a time. Returns the flags raised."""
        x, outputs = drawn(count, seed + self.first, moved=moved)
        labels = outputs.argmin(axis=1) if wrong else labels_of(outputs, 10_000 + seed + self.first)
        flags = 0
        for start in range(0, count, portion):
            rows = slice(start, start + portion)
            batch, made = served_of(self.bundle, self.first + start, x[rows], outputs[rows], self.weights)
            self.now_s += len(batch.ids)
            with self.parts.samples_db.transaction():
                joined = self.parts.store.add(batch, made, self.now_s)
                if label:
                    joined += self.parts.store.label(labelled(self.first + start, labels[rows]), self.now_s)
            flags += self.watch.consume(joined, self.parts.active, [(batch, made)], now_s=self.now_s)
        self.first += count
        return flags

    @property
    def weights(self) -> str:
        return self.parts.active.weights

    @property
    def watch(self) -> DriftWatch:
        return self.parts.watch

    @property
    def verdict(self) -> str:
        return str(self.watch.standing.policy.verdict)

    @property
    def flags(self) -> list[FlagEvent]:
        return self.parts.flags()

    def restart(self) -> None:
        self.parts = self.parts.restarted()

    def rows(self) -> dict[str, tuple[str, object]]:
        """What is stored, without what is random."""
        found = self.parts.agent_db.query("SELECT name, place, state FROM watch ORDER BY name")
        rows = {name: (place, state) for name, place, state in found}
        place = json.loads(rows["watch"][0]) | {"epoch": "", "flag": None}
        return {**rows, "watch": (json.dumps(place), rows["watch"][1])}


@pytest.fixture
def gateway(tmp_path: Path, whole: Bundle) -> Iterator[Gateway]:
    one = Gateway(tmp_path, whole, rules_of(whole, label_rows=400))
    yield one
    one.parts.close()


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


def test_a_monitor_that_joins_later_begins_by_itself(tmp_path: Path, whole: Bundle) -> None:
    one = Gateway(tmp_path, whole, rules_of(whole, label_free="off"))
    one.serve(5 * SIZE, label=True)
    level = one.rows()["loss-level"]
    one.parts.rules = rules_of(whole)
    one.restart()
    assert one.rows()["loss-level"] == level
    assert one.watch.standing.states["label-free"].to_arrays()["counts"][0] > 0, "it learns the level first"
    one.parts.close()


def test_a_state_of_an_earlier_version_costs_its_monitor_alone(gateway: Gateway) -> None:
    gateway.serve(20 * SIZE, label=True)
    assert gateway.serve(10 * SIZE, label=True, wrong=True) == 1
    before, policy = gateway.rows(), gateway.watch.standing.policy
    with gateway.parts.agent_db.transaction():
        older = encoded({"of another version": np.zeros(3)})
        gateway.parts.agent_db.execute("UPDATE watch SET state = ? WHERE name = 'label-free'", (older,))
    gateway.restart()
    assert gateway.rows()["loss-level"] == before["loss-level"]
    assert gateway.watch.standing.policy.level(Role.LABELLED) is policy.level(Role.LABELLED) is Verdict.ALARM
    assert gateway.watch.open_flag
    assert gateway.serve(10 * SIZE, label=True, wrong=True) == 0, "it is the same drift, and told already"
    assert gateway.watch.standing.batches["label-free"] == 40


def test_the_row_of_an_earlier_version_is_gone_on_with(tmp_path: Path, bundle: Bundle) -> None:
    rule = LossRiseState.start(RULE)
    for loss in (0.0, 5.0, 5.0):
        rule, _ = step(RULE, rule, np.full(BATCH, loss))
    flag = _some_flag()
    place = {"epoch": "e", "weights": "a" * 64, "rule": json.dumps(asdict(RULE), sort_keys=True), "cursor": 12}
    place |= {"drifted_from": "s4", "open_flag": True, "flag": flag.model_dump_json()}
    first = Parts(tmp_path, bundle)
    with first.agent_db.transaction():
        first.agent_db.execute("DELETE FROM watch")
        first.agent_db.execute("INSERT INTO watch VALUES (?, ?, ?)", (MONITOR_NAME, json.dumps(place), rule.to_json()))
    again = first.restarted()
    at = again.watch.standing
    assert (at.place.epoch, at.place.cursor, at.place.drifted_from, again.watch.open_flag) == ("e", 12, "s4", True)
    assert (at.policy.verdict, at.policy.flags) == (Verdict.ALARM, 1)
    again.store.resume_after(again.watch.cursor)
    assert again.feed(20, [True] * BATCH) == 0, "the flag of before stands"
    assert again.feed(30, [False] * BATCH * 2) == 0
    assert again.feed(40, [True] * BATCH) == 1
    assert [one.firing for one in again.flags()] == [2]
    again.close()


def _some_flag() -> FlagEvent:
    return FlagEvent(
        flag_id="1" * 64,
        monitor=MONITOR_NAME,
        firing=1,
        bundle="2" * 64,
        weights="a" * 64,
        weights_version=1,
        cohort="root",
        first_drifted_sample="s4",
        first_drifted_time_s=4.0,
        statistic=5.0,
        threshold=1.0,
        trainable_samples=1,
    )


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


def test_another_bundle_brings_its_own_monitors(parts: Parts, whole: Bundle) -> None:
    parts.feed(0, [False] * BATCH)
    watch = DriftWatch(
        parts.agent_db,
        parts.outbox,
        parts.store,
        gateway=GATEWAY,
        rules=parts.watch.rules,
        adopt=lambda active: rules_of(whole),
    )
    parts.server.swap(replace(parts.active, bundle=whole.digest, weights=OWN))
    watch.consume([], parts.active)
    assert [one.name for one in watch.rules.monitors] == ["loss-level", "label-free"]
    assert set(watch.standing.states) == {"loss-level", "label-free", "arrivals"}


def test_what_another_bundle_served_is_judged_once_the_disk_is_back(parts: Parts, whole: Bundle) -> None:
    """Its monitors look at features, those at hand do not."""
    parts.feed(0, [False] * BATCH)
    watch = DriftWatch(
        parts.agent_db,
        parts.outbox,
        parts.store,
        gateway=GATEWAY,
        rules=parts.watch.rules,
        adopt=lambda active: rules_of(whole),
    )
    parts.server.swap(replace(parts.active, bundle=whole.digest, weights=OWN))
    deny(parts.agent_db, "watch")
    served = [served_of(whole, first, *drawn(SIZE, first)) for first in (0, SIZE)]
    with pytest.raises(StorageError):
        watch.consume([], parts.active, served[:1])
    permit(parts.agent_db, "watch")
    watch.consume([], parts.active, served[1:])
    assert watch.standing.batches["label-free"] == 1


def test_monitors_that_cannot_be_used_leave_those_at_hand(parts: Parts) -> None:
    def adopt(active: object) -> WatchRules:
        raise DataError("of another make")

    rules = parts.watch.rules
    watch = DriftWatch(parts.agent_db, parts.outbox, parts.store, gateway=GATEWAY, rules=rules, adopt=adopt)
    parts.server.swap(replace(parts.active, bundle="f" * 64, weights=OWN))
    watch.consume([], parts.active)
    assert watch.rules is rules


def test_what_another_bundle_serves_is_not_judged_by_those_that_could_not_be_replaced(gateway: Gateway) -> None:
    """It has other inputs."""
    gateway.serve(2 * SIZE)
    gateway.parts.server.swap(replace(gateway.parts.active, bundle="f" * 64, weights=OTHERS))
    batch, made = served_of(gateway.bundle, 100, *drawn(SIZE, 1), weights=OTHERS)
    other = replace(batch, features={"z": batch.features["x"]})
    gateway.watch.consume([], gateway.parts.active, [(other, made)])
    assert gateway.watch.standing.batches["label-free"] == 2


def test_a_batch_of_another_shape_is_named_and_passed_over(gateway: Gateway) -> None:
    batch, made = served_of(gateway.bundle, 0, *drawn(SIZE, 1))
    gateway.watch.consume([], gateway.parts.active, [(batch, replace(made, outputs=made.outputs[:, :2]))])
    assert gateway.watch.unjudged_batches == 1
    assert "label-free" in gateway.watch.problems
    assert "label-free" in drift_status(gateway.watch).monitors[1].problem
    gateway.serve(SIZE)
    assert gateway.watch.problems == {}


def test_the_status_says_what_every_monitor_says(gateway: Gateway) -> None:
    status = drift_status(gateway.watch)
    assert (status.verdict, status.monitors[0].statistic, status.labels.fresh) == ("none", None, True)
    gateway.serve(10 * SIZE, label=True)
    gateway.serve(50 * SIZE, moved=SHIFT, portion=SIZE)
    status = drift_status(gateway.watch)
    assert DriftStatus.of_status({"drift": json.loads(json.dumps(status.to_document()))}) == status
    level, free = status.monitors
    assert (level.name, level.sees, level.batches, status.rule) == ("loss-level", "labelled", 10, "loss-level")
    assert (free.sees, free.level, free.flags, free.batches) == ("served", "alarm", True, 60)
    assert free.statistic is not None
    assert free.threshold is not None
    assert free.statistic > free.threshold
    assert free.attributions[0].name == NAMES[0]
    assert (status.verdict, status.flags, status.open_flag) == ("alarm", 1, gateway.flags[0].flag_id)
    assert status.severity > 0
    assert status.labels.served > 0
    assert "no labelled batch was judged for" in status.labels.says


def test_how_late_labels_come_is_known(gateway: Gateway) -> None:
    x, outputs = drawn(200, 4)
    labels = labels_of(outputs, 4)
    batch, made = served_of(gateway.bundle, 0, x, outputs)
    gateway.parts.store.add(batch, made, 0.0)
    gateway.watch.consume([], gateway.parts.active, [(batch, made)], now_s=1.0)
    rows = gateway.parts.store.label(labelled(0, labels), 0.0)
    gateway.watch.consume(rows, gateway.parts.active, now_s=11.0)
    gateway.now_s = 200.0
    gateway.serve(SIZE)
    facts = gateway.watch.standing.facts
    assert (facts.served, facts.labelled, facts.delay_median_s, facts.bias) == (128, 128, 10.0, "")


def test_sensor_faults_that_last_are_in_the_status(gateway: Gateway) -> None:
    stuck = SensorFaultEvent(fault_id="1" * 64, fault="stuck", sensor="inlet", unit="degC", since_s=7.0, value=21.5)
    (fault,) = drift_status(gateway.watch, [stuck]).faults
    assert (fault.feature, fault.fault, fault.share) == ("inlet", "stuck", None)
    assert fault.detail == "at 21.5 degC; since 7 s"
