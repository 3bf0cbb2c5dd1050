"""The store's lineage of cohorts, written by whole adaptations: complete, consistent, and whole after any kill."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_agent.errors import RejectedUpdate
from server_bridge.fleet.transport import Gateway
from server_bridge.flower.strategies import StrategySettings
from server_bridge.rounds.lineage import named
from server_bridge.store.lineage import CohortMove
from server_bridge.store.store import Store
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, towards
from tests.rounds.bench import Bench
from tests.rounds.test_controller import bench, flag_four, fleet


def told(moves: list[CohortMove]) -> list[tuple[str, str | None, str | None, str]]:
    return [(each.gateway, each.source, each.target, each.reason) for each in moves]


def replayed(moves: list[CohortMove]) -> dict[str, str]:
    """Membership by following the moves one by one; a gap in them fails."""
    place: dict[str, str] = {}
    for each in moves:
        assert place.get(each.gateway) == each.source, each
        if each.target is None:
            del place[each.gateway]
        else:
            place[each.gateway] = each.target
    return place


def check_whole(side: Bench) -> None:
    """Moves, membership, rounds and cohorts tell one story."""
    lineage = side.store.lineage
    moves = lineage.moves(bundle=side.bundle)
    members = lineage.members(side.bundle)
    assert replayed(moves) == members
    last = [record for each in side.store.adaptations.all() for record in side.store.adaptations.rounds(each.id)][-1]
    assert members == last.cohorts
    lives = {life.id: life for life in lineage.cohorts(side.bundle)}
    assert {name for name, life in lives.items() if life.ended_s is None} == {"root", *members.values()}
    assert {each.target for each in moves if each.target} <= lives.keys()


def test_every_move_has_its_round_reason_and_statistics(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    side.look()
    check_whole(side)
    members = side.releases.members(side.bundle)
    moves = side.store.lineage.moves()
    assert told(moves)[:2] == [("g1", None, "root", "newcomer"), ("g1", "root", members["g1"], "drifted")]
    assert told(moves)[-2:] == [("g5", None, "root", "newcomer"), ("g6", None, "root", "newcomer")]
    assert {(each.adaptation, each.round) for each in moves} == {("a1", 1)}
    assert all(each.statistics["similarity"] > 0.9 for each in moves if each.reason == "drifted")


def test_a_second_adaptation_adds_only_what_it_moves(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    side.look()
    before = len(side.store.lineage.moves())
    side.clock.now_s += 60
    side.flag("g5")
    side.clock.now_s += 10
    side.look()
    check_whole(side)
    (added,) = side.store.lineage.moves()[before:]
    assert (added.gateway, added.source, added.reason, added.adaptation) == ("g5", "root", "drifted", "a2")


def test_a_noisy_gateway_that_comes_back_is_told_with_its_statistics(tmp_path: Path) -> None:
    made = fleet()
    loud, quiet = (towards(direction(1), noise, 1) for noise in (9.0, 0.01))
    made.members["g2"].learn = lambda base, order: (loud if order.round == 1 else quiet)(base, order)
    made.members["g7"] = MemoryGateway(towards(direction(1), 0.01, 70))
    side = bench(tmp_path, rounds=4, made=made)
    side.flag("g7")
    flag_four(side)
    side.look()
    check_whole(side)
    (back,) = [each for each in side.store.lineage.moves() if each.reason == "returned"]
    assert (back.gateway, back.round) == ("g2", 3)
    assert back.target == side.releases.members(side.bundle)["g1"]
    assert back.statistics["similarity"] >= back.statistics["threshold"]
    (ended,) = [life for life in side.store.lineage.cohorts() if life.ended_s is not None]
    assert (ended.ended_why, ended.into, ended.ended_round) == ("returned", back.target, 3)


def test_cohorts_that_merge_are_told(tmp_path: Path) -> None:
    side = Bench(tmp_path, fleet(), StrategySettings(merge_threshold=2.0), rounds=2)
    flag_four(side)
    side.look()
    check_whole(side)
    merged = [each for each in side.store.lineage.moves() if each.reason == "merged"]
    assert {(each.gateway, each.source, each.target) for each in merged} == {("g3", "c2", "c1"), ("g4", "c2", "c1")}
    assert all(each.statistics["distance"] < each.statistics["threshold"] == 2.0 for each in merged)
    assert {life.id: life.ended_why for life in side.store.lineage.cohorts()} == {
        "root": None,
        "c1": None,
        "c2": "merged",
    }


def test_what_an_adaptation_without_a_release_moved_is_taken_back(tmp_path: Path) -> None:
    side = bench(tmp_path)
    side.releases.problem = RejectedUpdate("norm", "too far from the bundle")
    flag_four(side)
    side.look()
    assert replayed(side.store.lineage.moves()) == dict.fromkeys(side.fleet.members, "root")
    assert [each.reason for each in side.store.lineage.moves()][-4:] == ["abandoned"] * 4
    assert {life.ended_why for life in side.store.lineage.cohorts()} == {None, "abandoned"}
    side.releases.problem = None
    side.clock.now_s += 60
    flag_four(side)
    side.look()
    check_whole(side)
    used = [life.id for life in side.store.lineage.cohorts()]
    assert len(used) == len(set(used)) == 5


def test_a_gateway_that_leaves_and_one_that_comes_back_are_told(tmp_path: Path) -> None:
    side = bench(tmp_path)
    flag_four(side)
    side.look()
    ignored = side.fleet.members.pop("g6")
    _adapt(side, "g1")
    side.fleet.members["g6"] = ignored
    _adapt(side, "g3")
    ways = [("root", None, "left"), (None, "root", "readmitted")]
    assert [each[1:] for each in told(side.store.lineage.moves(gateway="g6"))][1:] == ways
    check_whole(side)


class _Ignoring(MemoryFleet):
    """A fleet of which the bridge does not listen to some."""

    ignored: frozenset[str] = frozenset()

    def gateways(self) -> Sequence[Gateway]:
        return [gateway for gateway in super().gateways() if gateway.id not in self.ignored]


def test_a_gateway_that_is_ignored_for_a_round_of_an_adaptation_is_readmitted_to_its_cohort(tmp_path: Path) -> None:
    made = _Ignoring(fleet().members)
    side = bench(tmp_path, rounds=3, made=made)
    ignored = iter([frozenset[str](), frozenset({"g4"}), frozenset[str]()])

    def ignore() -> None:
        made.ignored = next(ignored)

    made.before_exchange = ignore
    flag_four(side)
    side.look()
    cohort = side.releases.membership["g4"]
    ways = [(cohort, None, "left"), (None, cohort, "readmitted")]
    assert [each[1:] for each in told(side.store.lineage.moves(gateway="g4"))][2:] == ways
    check_whole(side)


def _adapt(side: Bench, gateway: str) -> None:
    """An adaptation because of one gateway, about the weights that it runs."""
    side.clock.now_s += 60
    side.flag(gateway, weights=side.releases.weights[side.releases.membership[gateway]])
    side.clock.now_s += 10
    side.look()


def test_a_store_without_a_lineage_takes_up_from_the_releases(tmp_path: Path) -> None:
    """Written by an older version, or restored from a copy: what a release placed is found, not guessed."""
    side = bench(tmp_path)
    side.releases.weights["c4"] = side.releases.weights["root"]
    side.releases.membership = {"g1": "c4", "g5": "c4"}
    flag_four(side)
    side.look()
    check_whole(side)
    assert told(side.store.lineage.moves(gateway="g5")) == [("g5", None, "c4", "placed")]
    assert told(side.store.lineage.moves(gateway="g1"))[0] == ("g1", None, "c4", "placed")


def test_gateways_are_named_in_the_statistics() -> None:
    facts = {"client": 1, "own": {"client": 2, "similarity": 0.5}, "other": None, "threshold": 1}
    assert named(facts, {1: "g1", 2: "g2"}) == {
        "client": "g1",
        "own": {"client": "g2", "similarity": 0.5},
        "other": None,
        "threshold": 1,
    }


@contextmanager
def killed_at(store: Store, write: int, count: Callable[[], int]) -> Iterator[None]:
    """The process dies inside the given writing transaction of the store: nothing of it is kept."""
    database: Any = store.database
    plain = database.write

    @contextmanager
    def deadly() -> Iterator[Any]:
        inner = getattr(database._local, "connection", None) is not None
        with plain() as connection:
            yield connection
            if not inner and count() == write:
                raise KeyboardInterrupt

    database.write = deadly
    try:
        yield
    finally:
        database.write = plain


def _counter() -> Callable[[], int]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return count


def test_killed_in_any_write_of_the_store_it_goes_on_to_the_same_cohorts_and_a_whole_lineage(tmp_path: Path) -> None:
    straight = bench(tmp_path / "straight")
    flag_four(straight)
    total = _counter()
    with killed_at(straight.store, 0, total):
        straight.look()
    writes = total() - 1
    assert writes >= 6
    for write in range(1, writes + 1):
        side = bench(tmp_path / str(write))
        flag_four(side)
        with killed_at(side.store, write, _counter()), pytest.raises(KeyboardInterrupt):
            side.look()
        side.store.close()
        again = bench(tmp_path / str(write), made=side.fleet)
        again.releases = again.runner._releases = side.releases
        again.clock.now_s = side.clock.now_s
        again.look()
        check_whole(again)
        found = again.store.lineage.members(again.bundle)
        assert found["g1"] == found["g2"] != found["g3"] == found["g4"]
        assert len(told(again.store.lineage.moves())) == len(told(straight.store.lineage.moves()))
        again.store.close()
