"""A drift that returns in a later adaptation: recognised across adaptations, kills and restarts."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.wire.messages import Evaluate
from edge_agent.wire.tensors import Weights
from server_bridge.flower.strategies import StrategySettings
from server_bridge.store.adaptations import Adaptation
from tests.flower.memory_fleet import MemoryFleet, Metrics
from tests.rounds.bench import Bench
from tests.rounds.test_controller import flag_four, fleet
from tests.rounds.test_lineage import check_whole


def _bench(path: Path, made: MemoryFleet | None = None, candidates: int = 2) -> Bench:
    return Bench(path, made or _fleet(), StrategySettings(candidates=candidates), rounds=2)


def _fleet() -> MemoryFleet:
    made = fleet()
    for gateway in made.members.values():
        gateway.metrics = {"clma-loss": 0.5}
        gateway.judge = lambda _: {"loss": 0.5}
    return made


def _first_drift(side: Bench) -> str:
    """Two families drift; the cohort of the first."""
    flag_four(side)
    side.look()
    side.clock.now_s += 60
    return side.releases.membership["g1"]


def _drifts_into(side: Bench, cohort: str) -> None:
    """g5's data are now those of a cohort: only its model is any good."""
    right = side.released(cohort)["w"]

    def judge(weights: Weights) -> Metrics:
        return {"loss": 0.5 if np.allclose(weights["w"], right) else 2.0, "loss-error": 0.1}

    side.fleet.members["g5"].judge = judge
    side.flag("g5")
    side.clock.now_s += 10


def _asked(side: Bench) -> list[str]:
    """How often g5 was; small cohorts that split off doubtfully are asked once in a later adaptation, too."""
    return [o.gateway for o in side.fleet.orders if isinstance(o.action, Evaluate) and o.gateway == "g5"]


def test_a_flagged_gateway_evaluates_the_cohorts_and_trains_in_the_one_that_knows_its_drift(tmp_path: Path) -> None:
    side = _bench(tmp_path)
    known = _first_drift(side)
    assert _asked(side) == []
    _drifts_into(side, known)
    side.look()
    assert side.releases.membership["g5"] == known
    assert set(side.releases.weights) == {"root", *side.releases.membership.values()}
    assert _asked(side) == ["g5"] * 3  # its own, and both others
    trained = {o.action.cohort for o in side.fleet.orders if o.gateway == "g5" and not isinstance(o.action, Evaluate)}
    assert trained == {"root", known}
    (move,) = [each for each in side.store.lineage.moves(gateway="g5") if each.reason == "recognised"]
    assert (move.adaptation, move.round, move.source, move.target) == ("a2", 1, "root", known)
    assert move.statistics["losses"] == {"root": 2.0, "c1": 0.5, "c2": 2.0}
    rounds = side.store.adaptations.rounds("a2")
    assert (rounds[0].metrics["clma-num-recognised"], rounds[0].metrics["clma-num-new-cohorts"]) == (1, 0)
    assert side.store.flags.open() == []
    check_whole(side)


@pytest.mark.parametrize("killed_in", [1, 2, 3, 4, 5])
def test_killed_in_any_exchange_it_asks_again_and_no_order_is_carried_out_twice(tmp_path: Path, killed_in: int) -> None:
    side = _bench(tmp_path)
    known = _first_drift(side)
    _drifts_into(side, known)
    exchanges = 0

    def deadly() -> None:
        nonlocal exchanges
        exchanges += 1
        if exchanges == killed_in:
            raise KeyboardInterrupt

    side.fleet.before_exchange = deadly
    with pytest.raises(KeyboardInterrupt):
        side.look()
    side.store.close()
    side.fleet.before_exchange = lambda: None
    again = _bench(tmp_path, side.fleet)
    again.releases.weights, again.releases.membership = side.releases.weights, side.releases.membership
    again.clock.now_s = side.clock.now_s
    again.look()
    check_whole(again)
    assert again.releases.membership["g5"] == known
    done = side.fleet.carried_out
    assert len(done) == len(set(done))


def test_who_does_not_answer_in_time_is_asked_no_more_and_regrouped_as_ever(tmp_path: Path) -> None:
    side = _bench(tmp_path)
    known = _first_drift(side)
    _drifts_into(side, known)
    side.fleet.members["g5"].tamper = lambda order, outcome: (
        type(outcome)(outcome.gateway, outcome.command_id, None, None, "timeout")
        if isinstance(order.action, Evaluate)
        else outcome
    )
    side.look()
    assert _asked(side) == ["g5"]
    assert side.releases.membership["g5"] not in ("root", known)
    assert [record.replied for record in side.store.adaptations.rounds("a2")] == [sorted(side.fleet.members)] * 2
    check_whole(side)


def test_without_the_memory_of_the_adaptation_before_nobody_moves_and_nothing_fails(tmp_path: Path) -> None:
    side = _bench(tmp_path)
    known = _first_drift(side)
    memory = side.store.adaptations.memories()[side.bundle]
    side.store.blobs.remove(memory)
    _drifts_into(side, known)
    side.look()
    assert side.releases.membership["g5"] not in ("root", known)
    assert _last(side).status == "done"
    check_whole(side)


def test_one_memory_a_bundle_is_kept_and_an_adaptation_that_failed_leaves_the_one_before(tmp_path: Path) -> None:
    side = _bench(tmp_path)
    _first_drift(side)
    first = side.store.adaptations.memories()
    assert first == {side.bundle: _last(side).state}
    for gateway in side.fleet.members.values():
        gateway.silent = True
    side.flag("g6")
    side.clock.now_s += 10
    side.look()
    assert _last(side).status == "failed"
    assert side.store.adaptations.memories() == first
    assert side.store.blobs.read(first[side.bundle])


def _last(side: Bench) -> Adaptation:
    return side.store.adaptations.all()[-1]
