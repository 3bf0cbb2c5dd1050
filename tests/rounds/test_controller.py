from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.wire.tensors import Weights
from server_bridge.errors import BrokerAway
from server_bridge.flower.strategies import StrategyName, StrategySettings
from server_bridge.rounds.round_settings import RoundSettings
from server_bridge.store.flags import StoredFlag
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, initial_weights, towards
from tests.rounds.bench import Bench

FAMILIES = {"g1": 1, "g2": 1, "g3": 2, "g4": 2, "g5": 3, "g6": 3}


def fleet() -> MemoryFleet:
    """Two families that drift apart, and two gateways that hardly change."""
    return MemoryFleet(
        {
            name: MemoryGateway(towards(direction(family, 0.01 if family == 3 else 1.0), 0.001, number))
            for number, (name, family) in enumerate(FAMILIES.items())
        }
    )


def bench(path: Path, name: StrategyName = "clma", *, rounds: int = 2, made: MemoryFleet | None = None) -> Bench:
    return Bench(path, made or fleet(), StrategySettings(name=name), rounds=rounds)


def flag_four(side: Bench) -> None:
    for gateway in ("g1", "g2", "g3", "g4"):
        side.flag(gateway)
    side.clock.now_s += 10


def status(side: Bench, flag_id: str) -> StoredFlag:
    return next(flag for flag in side.store.flags.all() if flag.event.flag_id == flag_id)


def test_flags_become_cohorts_and_one_release(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    side.look()
    members = side.releases.members(side.bundle)
    assert members["g1"] == members["g2"] != members["g3"] == members["g4"]
    assert set(members) == {"g1", "g2", "g3", "g4"}
    assert len(side.releases.released) == 1
    assert side.releases.adaptations == ["a1"]
    assert set(side.releases.weights) == {"root", *members.values()}
    assert side.reasons() == [
        "start:flags-settled",
        "round:committed",
        "round:committed",
        "adaptation-done:released",
    ]
    assert side.store.flags.open() == []
    first, second = side.store.adaptations.rounds("a1")
    assert (first.drifted, second.drifted) == (["g1", "g2", "g3", "g4"], [])
    root = side.released("root")["w"]
    assert np.abs(root - initial_weights()["w"]).max() < 0.1


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_a_strategy_without_cohorts_releases_the_root(tmp_path: Path, name: StrategyName) -> None:
    side = bench(tmp_path, name)
    flag_four(side)
    side.look()
    assert side.releases.members(side.bundle) == {}
    assert set(side.releases.weights) == {"root"}
    assert np.abs(side.released("root")["w"] - initial_weights()["w"]).max() > 0.05


@pytest.mark.parametrize("killed_in", [1, 2, 3])
@pytest.mark.parametrize("name", ["clma", "fedavg", "fedadam"])
def test_killed_in_any_round_it_goes_on_to_the_same_end(tmp_path: Path, name: StrategyName, killed_in: int) -> None:
    straight = bench(tmp_path / "straight", name, rounds=3)
    flag_four(straight)
    straight.look()
    first = bench(tmp_path / "killed", name, rounds=3)
    flag_four(first)
    seen = 0

    def kill() -> None:
        nonlocal seen
        seen += 1
        if seen == killed_in:
            raise KeyboardInterrupt

    first.fleet.before_exchange = kill
    with pytest.raises(KeyboardInterrupt):
        first.look()
    first.store.close()
    first.fleet.before_exchange = lambda: None
    second = bench(tmp_path / "killed", name, rounds=3, made=first.fleet)
    second.look()
    assert second.releases.members(second.bundle).keys() == straight.releases.members(straight.bundle).keys()
    assert _same(second.released("root"), straight.released("root"))
    assert [row.round for row in second.store.adaptations.rounds("a1")] == [1, 2, 3]


def _same(one: Weights, other: Weights) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_a_flag_during_an_adaptation_joins_its_next_round(tmp_path: Path) -> None:
    side = bench(tmp_path, rounds=3)
    flag_four(side)
    exchanges = 0

    def flag_once() -> None:
        nonlocal exchanges
        exchanges += 1
        if exchanges == 1:
            side.flag("g5")

    side.fleet.before_exchange = flag_once
    side.look()
    drifted = [record.drifted for record in side.store.adaptations.rounds("a1")]
    assert drifted == [["g1", "g2", "g3", "g4"], ["g5"], []]


def test_a_flag_of_a_gateway_that_did_not_answer_stays_open(tmp_path: Path) -> None:
    side = bench(tmp_path, rounds=1)
    side.fleet.members["g4"].silent = True
    flag_four(side)
    side.look()
    assert [flag.gateway for flag in side.store.flags.open()] == ["g4"]


def test_waiting_is_recorded_once_a_reason(tmp_path: Path) -> None:
    side = bench(tmp_path)
    side.flag("g1", samples=1)
    for _ in range(5):
        side.look()
    side.clock.now_s += 10
    for _ in range(5):
        side.look()
    assert side.reasons() == ["wait:settling", "wait:too-few-samples"]
    side.clock.now_s += 100
    side.look()
    assert side.reasons()[2] == "start:cap-reached"


def test_flags_about_weights_that_run_no_longer_are_recorded_and_ignored(tmp_path: Path) -> None:
    side = bench(tmp_path)
    old = side.flag("g1", weights="d" * 64, bundle="f" * 64)
    side.look()
    assert status(side, old).status == "ignored"
    assert side.reasons() == ["flags-ignored:unknown-bundle"]


def test_a_round_nobody_answers_is_retried_and_then_fails_with_its_reason(tmp_path: Path) -> None:
    side = bench(tmp_path)
    for member in side.fleet.members.values():
        member.silent = True
    flag_four(side)
    side.look()
    (adaptation,) = side.store.adaptations.all()
    assert (adaptation.status, adaptation.reason) == ("failed", "no-replies")
    assert [row.attempt for row in side.store.adaptations.rounds("a1")] == [1, 2, 3]
    assert len({order.command_id for order in side.fleet.orders}) == 18
    assert len(side.store.flags.open()) == 4
    assert side.releases.released == []
    side.look()
    assert side.reasons()[-1] == "wait:cool-down"


def test_a_first_round_without_any_flagged_gateway_adapts_nobody(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    for name in ("g1", "g2", "g3", "g4"):
        side.fleet.members[name].silent = True
    side.look()
    (adaptation,) = side.store.adaptations.all()
    assert (adaptation.status, adaptation.reason) == ("failed", "no-replies")
    assert "none of the flagged gateways answered usably: g1, g2, g3, g4" in side.store.decisions.recent()[1].detail
    assert len(side.store.flags.open()) == 4
    assert side.releases.released == []


def test_one_flagged_gateway_that_answers_makes_a_first_round(tmp_path: Path) -> None:
    side = bench(tmp_path, rounds=1)
    flag_four(side)
    for name in ("g1", "g2", "g3"):
        side.fleet.members[name].silent = True
    side.look()
    assert {flag.gateway for flag in side.store.flags.open()} == {"g1", "g2", "g3"}
    assert [row.attempt for row in side.store.adaptations.rounds("a1")] == [1]


def test_an_offline_fleet_is_no_crash(tmp_path: Path) -> None:
    side = bench(tmp_path)
    for member in side.fleet.members.values():
        member.online = False
    flag_four(side)
    side.look()
    (adaptation,) = side.store.adaptations.all()
    assert adaptation.status == "failed"


def test_a_release_waits_for_the_broker_and_is_not_lost(tmp_path: Path) -> None:
    side = bench(tmp_path)
    side.releases.problem = TransientError("the broker is away")
    flag_four(side)
    side.fleet.before_exchange = lambda: None

    class StopAfter:
        def __init__(self) -> None:
            self.left = 3

        def wait(self, wait_s: float) -> bool:
            self.left -= 1
            if self.left == 0:
                side.releases.problem = None
            return False

    patience = StopAfter()
    side.runner._stopped = lambda wait_s: patience.wait(wait_s) if wait_s == 0.0 and side.releases.problem else False
    side.look()
    assert len(side.releases.released) == 1


def test_a_refused_release_ends_the_adaptation_as_failed(tmp_path: Path) -> None:
    side = bench(tmp_path)
    side.releases.problem = RejectedUpdate("norm", "too far from the bundle")
    flag_four(side)
    side.look()
    (adaptation,) = side.store.adaptations.all()
    assert (adaptation.status, adaptation.reason) == ("failed", "release-refused")


def test_a_second_adaptation_begins_from_the_released_cohorts(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    side.look()
    members = side.releases.members(side.bundle)
    side.clock.now_s += 60
    side.flag("g5")
    side.clock.now_s += 10
    side.look()
    assert [adaptation.status for adaptation in side.store.adaptations.all()] == ["done", "done"]
    after = side.releases.members(side.bundle)
    assert {gateway: after[gateway] for gateway in members} == members
    assert after["g5"] not in {*members.values(), "root"}


def test_a_round_that_waits_for_the_broker_counts_as_no_attempt(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    tries = 0

    def away_at_first() -> None:
        nonlocal tries
        tries += 1
        if tries <= 7:
            raise BrokerAway("the broker is away")

    side.fleet.before_exchange = away_at_first
    side.look()
    assert side.reasons() == ["start:flags-settled", "round:committed", "round:committed", "adaptation-done:released"]
    assert [(row.round, row.attempt) for row in side.store.adaptations.rounds("a1")] == [(1, 1), (2, 1)]


def test_the_first_round_may_have_a_learning_rate_of_its_own() -> None:
    settings = RoundSettings(
        rounds=3,
        timeout_s=1.0,
        training_graph="sgd",
        learning_rate=0.3,
        epochs=1,
        batch_size=8,
        min_samples=1,
        max_samples=8,
        coding="fp32",
        first_learning_rate=0.1,
    )
    assert [settings.learning_rate_of(number) for number in (1, 2, 3)] == [0.1, 0.3, 0.3]
