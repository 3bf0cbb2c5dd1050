"""Merges that an operator asks for, with the real store, controller and lineage around a fleet in memory."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import RejectedUpdate, StorageError
from edge_agent.wire.tensors import encode_weights
from server_bridge.errors import BrokerAway
from server_bridge.flower.strategies import StrategySettings
from server_bridge.rounds.merging import RETRY_S, apart, unfit_merge
from server_bridge.store.adaptations import Adaptation
from tests.rounds.bench import Bench
from tests.rounds.test_controller import bench, flag_four, fleet


@pytest.fixture
def side(tmp_path: Path) -> Bench:
    """Families in c1 (g1, g2) and c2 (g3, g4); g5 and g6 are in the root."""
    return _parted_in_two(bench(tmp_path))


def _parted_in_two(made: Bench) -> Bench:
    flag_four(made)
    made.look()
    made.clock.now_s += 60.0
    return made


def _merged_and_adapted_again(side: Bench) -> Mapping[str, str]:
    """c2 goes into c1, then g5 drifts: the cohorts after that adaptation."""
    ask(side, "c2", "c1")
    side.look()
    side.flag("g5")
    side.clock.now_s += 10
    side.look()
    assert side.reasons()[-1] == "adaptation-done:released"
    return side.releases.members(side.bundle)


def ask(side: Bench, gone: str, kept: str, *, unlike: bool = True) -> int:
    return side.store.merges.ask(
        side.bundle, gone, kept, asked_by="ann", why="alike again", now_s=side.clock.now_s, unlike=unlike
    )


def outcomes(side: Bench) -> list[tuple[str, str | None]]:
    return [(each.status, each.outcome) for each in side.store.merges.all()]


def test_members_get_the_kept_cohorts_release_and_the_lineage_says_who_asked_when_and_why(side: Bench) -> None:
    kept, asked_s = side.releases.weights["c1"], side.clock.now_s
    ask(side, "c2", "c1")
    side.clock.now_s += 5
    side.look()
    assert side.releases.members(side.bundle) == dict.fromkeys(("g1", "g2", "g3", "g4"), "c1")
    assert side.releases.current(side.bundle) == {"root": side.releases.weights["root"], "c1": kept}
    assert side.releases.released[-1] == "cohort c2 into c1, asked by ann: alike again"
    moves = [move for move in side.store.lineage.moves() if move.reason == "merge-asked"]
    assert [(move.gateway, move.source, move.target, move.adaptation) for move in moves] == [
        ("g3", "c2", "c1", None),
        ("g4", "c2", "c1", None),
    ]
    assert moves[0].time_s == asked_s + 5
    assert moves[0].statistics == {
        "rule": "merge-asked",
        "asked_by": "ann",
        "asked_s": asked_s,
        "why": "alike again",
    }
    (ended,) = [life for life in side.store.lineage.cohorts() if life.ended_s is not None]
    assert (ended.id, ended.ended_why, ended.into, ended.ended_adaptation) == ("c2", "merge-asked", "c1", None)
    assert outcomes(side) == [("merged", "release 3")]
    assert side.reasons()[-1] == "cohorts:merged"


def test_cohorts_that_are_not_alike_are_merged_only_where_that_is_asked(side: Bench) -> None:
    ask(side, "c2", "c1", unlike=False)
    side.look()
    ((status, why),) = outcomes(side)
    assert status == "refused"
    assert str(why).startswith("what c2 and c1 have changed is not alike: ")
    assert side.releases.members(side.bundle)["g3"] == "c2"
    assert len(side.releases.released) == 1
    ask(side, "c2", "root", unlike=False)
    side.look()
    assert outcomes(side)[-1] == ("merged", "release 3")


def test_cohorts_that_have_come_to_the_same_change_are_alike(side: Bench) -> None:
    weights = {name: side.released(name) for name in ("root", "c1")}
    twice = {name: value + 2 * (weights["c1"][name] - value) for name, value in weights["root"].items()}
    side.releases.weights["c2"] = side.store.blobs.put(encode_weights(twice))
    ask(side, "c2", "c1", unlike=False)
    side.look()
    assert outcomes(side) == [("merged", "release 3")]


def test_how_far_changes_lie_apart() -> None:
    root = {"w": np.ones((2, 2), np.float32), "b": np.zeros(3, np.float32)}
    one = {**root, "b": np.array([1, 0, 0], np.float32)}
    other = {**root, "b": np.array([0, 2, 0], np.float32)}
    assert apart(one, one, root) == pytest.approx(0.0, abs=1e-12)
    assert apart(one, other, root) == pytest.approx(1.0)
    assert apart(one, root, root) == 1.0


def test_into_the_root_they_are_listed_in_no_release_any_more(side: Bench) -> None:
    ask(side, "c2", "root")
    side.look()
    assert side.releases.members(side.bundle) == {"g1": "c1", "g2": "c1"}
    assert side.store.lineage.members(side.bundle)["g3"] == "root"


def test_one_after_the_other_in_the_order_in_which_they_were_asked(side: Bench) -> None:
    ask(side, "c2", "c1")
    ask(side, "c2", "root")
    ask(side, "c1", "root")
    side.look()
    assert outcomes(side) == [("merged", "release 3"), ("refused", "there is no cohort 'c2'"), ("merged", "release 4")]
    assert side.releases.members(side.bundle) == {}
    assert "cohorts:merge-refused" in side.reasons()


def test_while_an_adaptation_runs_it_waits_and_its_release_is_of_what_came_out(side: Bench) -> None:
    side.flag("g5")
    side.clock.now_s += 10
    seen: list[tuple[int, Adaptation | None]] = []

    def ask_once() -> None:
        if not seen:
            ask(side, "c3", "c1")  # begins in this round
        seen.append((len(side.releases.released), side.store.adaptations.running()))
        side.merges.take_up()

    side.fleet.before_exchange = ask_once
    side.look()
    assert [number for number, _ in seen] == [1] * len(seen)
    assert all(running is not None for _, running in seen)
    assert outcomes(side) == [("queued", None)]
    side.look()
    assert outcomes(side) == [("merged", "release 4")]
    assert side.releases.members(side.bundle)["g5"] == "c1"


def test_the_next_adaptation_goes_on_from_the_merged_cohort(tmp_path: Path) -> None:
    side = _parted_in_two(Bench(tmp_path, fleet(), StrategySettings(part_mixed=False), rounds=2))
    members = _merged_and_adapted_again(side)
    assert [members[gateway] for gateway in ("g1", "g2", "g3", "g4")] == ["c1"] * 4
    first = next(record for record in side.store.adaptations.rounds("a2") if record.weights)
    assert set(first.weights) >= {"root", "c1"}
    assert "c2" not in first.weights


def test_a_merge_of_what_pulls_apart_is_undone_in_the_next_adaptation(side: Bench) -> None:
    members = _merged_and_adapted_again(side)
    parted = {cohort: [g for g in ("g1", "g2", "g3", "g4") if members[g] == cohort] for cohort in members.values()}
    assert sorted(filter(None, parted.values())) == [["g1", "g2"], ["g3", "g4"]]
    assert members["g1"] == "c1"
    last = side.store.lineage.moves()[-1]
    assert (last.gateway, last.source, last.reason, last.adaptation, last.round) == ("g4", "c1", "drifted", "a2", 2)


def test_a_broker_that_is_away_is_waited_for(side: Bench) -> None:
    side.releases.problem = BrokerAway("the broker is away")
    ask(side, "c2", "c1")
    side.look()
    side.releases.problem = None
    side.look()
    assert outcomes(side) == [("queued", None)]
    side.clock.now_s += RETRY_S
    side.look()
    assert outcomes(side) == [("merged", "release 3")]


def test_what_the_signer_refuses_is_refused_and_what_the_disk_refuses_stays_queued(side: Bench) -> None:
    ask(side, "c2", "c1")
    side.releases.problem = StorageError("disk full")
    with pytest.raises(StorageError):
        side.look()
    assert outcomes(side) == [("queued", None)]
    side.releases.problem = RejectedUpdate("membership", "not by this policy")
    side.look()
    ((status, why),) = outcomes(side)
    assert status == "refused"
    assert "not by this policy" in str(why)
    assert side.store.lineage.members(side.bundle)["g3"] == "c2"


def test_killed_between_the_release_and_its_record_the_record_is_written_at_the_next_start(
    side: Bench, tmp_path: Path
) -> None:
    ask(side, "c2", "c1")
    write, side.store.lineage.move = side.store.lineage.move, _killed  # type: ignore[method-assign]  # a kill at that line
    with pytest.raises(KeyboardInterrupt):
        side.look()
    side.store.lineage.move = write  # type: ignore[method-assign]  # and the next start
    assert side.store.lineage.members(side.bundle)["g3"] == "c2"
    assert outcomes(side) == [("queued", None)]
    side.look()
    assert side.store.lineage.members(side.bundle)["g3"] == "c1"
    assert outcomes(side) == [("merged", "released before")]
    assert len(side.releases.released) == 2


def _killed(moves: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("gone", "kept", "problem"),
    [
        ("c1", "c1", "into itself"),
        ("root", "root", "into itself"),
        ("root", "c1", "the root cohort goes into no other"),
        ("c9", "c1", "no cohort 'c9'"),
        ("c1", "c9", "no cohort 'c9'"),
    ],
)
def test_what_cannot_be_merged_is_named(gone: str, kept: str, problem: str) -> None:
    assert problem in str(unfit_merge(gone, kept, {"root", "c1", "c2"}))
    assert unfit_merge("c2", "c1", {"root", "c1", "c2"}) is None
    assert unfit_merge("c2", "root", {"root", "c1", "c2"}) is None
