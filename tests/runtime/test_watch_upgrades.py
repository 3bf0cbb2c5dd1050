"""What the watch keeps when its settings, its version or the bundle are others."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseState, step
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Role
from edge_agent.errors import DataError, StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.packing import encoded
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.wire.messages import FlagEvent
from tests.runtime.bench import BATCH, GATEWAY, RULE, Parts, deny, permit
from tests.runtime.watched import OWN, SIZE, drawn, rules_of, served_of
from tests.runtime.watched_gateway import Gateway

OTHERS = "b" * 64


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


def another_activated(parts: Parts, whole: Bundle) -> DriftWatch:
    """The watch of a gateway that has served by one bundle, and now serves by another, which has all monitors."""
    parts.feed(0, [False] * BATCH)
    rules, adopt = parts.watch.rules, lambda active: rules_of(whole)
    watch = DriftWatch(parts.agent_db, parts.outbox, parts.store, gateway=GATEWAY, rules=rules, adopt=adopt)
    parts.server.swap(replace(parts.active, bundle=whole.digest, weights=OWN))
    return watch


def test_another_bundle_brings_its_own_monitors(parts: Parts, whole: Bundle) -> None:
    watch = another_activated(parts, whole)
    watch.consume([], parts.active)
    assert [one.name for one in watch.rules.monitors] == ["loss-level", "label-free"]
    assert set(watch.standing.states) == {"loss-level", "label-free", "arrivals"}


def test_what_another_bundle_served_is_judged_once_the_disk_is_back(parts: Parts, whole: Bundle) -> None:
    """Its monitors look at features, those at hand do not."""
    watch = another_activated(parts, whole)
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
