from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from edge_agent.errors import StorageError
from server_bridge.errors import StoreDamaged
from server_bridge.store.lineage import CohortLife, CohortMove
from server_bridge.store.store import Store, store_url
from server_bridge.store.tables import COHORT_MOVES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(store_url(tmp_path), tmp_path / "blobs")
    yield made
    made.close()


def move(gateway: str, source: str | None, target: str | None, *, bundle: str = "b1", number: int = 1) -> CohortMove:
    return CohortMove(
        time_s=1.0,
        bundle=bundle,
        adaptation="a1",
        round=number,
        gateway=gateway,
        source=source,
        target=target,
        reason="drifted",
        statistics={"similarity": 0.5, "other": {"client": "g2", "similarity": 0.1}},
    )


def life(cohort: str, *, bundle: str = "b1", began_s: float = 1.0) -> CohortLife:
    return CohortLife(
        bundle=bundle,
        id=cohort,
        began_s=began_s,
        adaptation="a1",
        round=1,
        ended_s=None,
        ended_adaptation=None,
        ended_round=None,
        ended_why=None,
        into=None,
    )


def test_moves_come_back_as_they_were_and_say_who_is_where(store: Store) -> None:
    moves = [
        move("g1", None, "root"),
        move("g1", "root", "c1", number=2),
        move("g2", None, "root"),
        move("g3", None, "c1"),
    ]
    store.lineage.move(moves)
    store.lineage.move([move("g3", "c1", None), move("g1", None, "c7", bundle="b2")])
    assert store.lineage.moves(bundle="b1")[:4] == moves
    assert [each.target for each in store.lineage.moves(gateway="g1")] == ["root", "c1", "c7"]
    assert store.lineage.members("b1") == {"g1": "c1", "g2": "root"}
    assert store.lineage.members("b2") == {"g1": "c7"}
    assert store.lineage.left("b1") == {"g3"}


def test_a_cohorts_id_is_used_once(store: Store) -> None:
    store.lineage.begin(life("c1"))
    store.lineage.end("b1", "c1", "merged", 5.0, "a2", 3, "root")
    store.lineage.end("b1", "c1", "emptied", 9.0, "a9", 9, None)
    store.lineage.begin(life("c1", bundle="b2"))
    with pytest.raises(StorageError, match="UNIQUE"):
        store.lineage.begin(life("c1"))
    (ended,) = store.lineage.cohorts("b1")
    assert (ended.ended_s, ended.ended_why, ended.into, ended.ended_round) == (5.0, "merged", "root", 3)
    assert len(store.lineage.cohorts()) == 2


def test_the_oldest_moves_are_forgotten_but_never_where_somebody_is(store: Store) -> None:
    store.lineage.move([move("quiet", None, "c1")])
    store.lineage.move([move("busy", "c1", f"c{number}", number=number) for number in range(2, 30)])
    assert store.lineage.trim(keep=5) == 23
    assert store.lineage.members("b1") == {"busy": "c29", "quiet": "c1"}
    assert len(store.lineage.moves()) == 6
    assert store.lineage.trim(keep=5) == 0


def test_statistics_that_are_no_json_are_refused(store: Store) -> None:
    bad = move("g1", None, "root")
    bad.statistics["similarity"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        store.lineage.move([bad])
    assert store.lineage.moves() == []


@pytest.mark.parametrize(
    "text",
    ["[]", "3", '"words"', "{", '{"own": 3}', '{"other": {"similarity": "x"}}', '{"own": {"standard_error": []}}'],
)
def test_statistics_that_the_bridge_never_wrote_are_damage_that_is_named(store: Store, text: str) -> None:
    store.lineage.move([move("g1", None, "root")])
    with store.database.write() as connection:
        connection.execute(update(COHORT_MOVES).values(statistics=text))
    with pytest.raises(StoreDamaged, match="cohort_moves") as caught:
        store.lineage.moves()
    assert text == "{" or "move 1 of gateway g1" in str(caught.value)
