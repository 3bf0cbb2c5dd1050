import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.database import open_database
from edge_agent.runtime.storage import ASIDE_KEPT, AgentStorage, open_or_set_aside, set_aside


def filled(path: Path) -> Path:
    with closing(open_database(path)) as db, db.transaction():
        db.execute("CREATE TABLE kept (value TEXT)")
        db.execute("CREATE INDEX by_value ON kept (value)")
        db.execute_many("INSERT INTO kept VALUES (?)", [(f"{number} " + "x" * 500,) for number in range(500)])
    return path


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def test_a_sound_database_is_opened_as_it_is(tmp_path: Path) -> None:
    path = filled(tmp_path / "agent.db")
    db, damage = open_or_set_aside(path, synchronous="FULL")
    with closing(db):
        assert db.query("SELECT count(*) FROM kept") == [(500,)]
    assert (damage, aside(path)) == (None, [])


def test_an_absent_one_is_made(tmp_path: Path) -> None:
    db, damage = open_or_set_aside(tmp_path / "agent.db", synchronous="FULL")
    db.close()
    assert damage is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: bytes(len(data)),
        lambda data: b"no database " * 2000,
        lambda data: data[:8192] + b"\xff" * (len(data) - 8192),
        lambda data: data[: len(data) // 2],
        lambda data: bytes(100) + data[100:],
    ],
    ids=["all zero", "text", "spoilt pages", "cut off", "zero header"],
)
def test_a_corrupt_one_is_set_aside_whole_and_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = filled(tmp_path / "agent.db")
    spoilt = spoil(path.read_bytes())
    path.write_bytes(spoilt)
    db, damage = open_or_set_aside(path, synchronous="FULL")
    with closing(db), db.transaction():
        db.execute("CREATE TABLE kept (value TEXT)")
    assert damage is not None
    assert str(path) in damage
    assert [kept.read_bytes() for kept in aside(path) if kept.suffix not in ("-wal", "-shm")] == [spoilt]
    again, damage = open_or_set_aside(path, synchronous="FULL")
    again.close()
    assert damage is None


def test_a_log_left_by_a_kill_goes_with_its_database(tmp_path: Path) -> None:
    path, log = filled(tmp_path / "agent.db"), tmp_path / "agent.db-wal"
    with closing(open_database(path)) as db:
        with db.transaction():
            db.execute("CREATE TABLE of_the_old_file (value TEXT)")
        left = log.read_bytes()
    sound = path.read_bytes()
    path.write_bytes(sound[:8192] + b"\xff" * (len(sound) - 8192))
    log.write_bytes(left)
    db, damage = open_or_set_aside(path, synchronous="FULL")
    with closing(db):
        assert db.query("SELECT * FROM sqlite_schema") == []
    assert damage is not None


def test_one_that_is_in_use_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_agent.link.database.BUSY_TIMEOUT_S", 0.1)
    path = filled(tmp_path / "agent.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="locked"):
            open_or_set_aside(path, synchronous="FULL")
    assert aside(path) == []
    with closing(open_database(path)) as db:
        assert db.query("SELECT count(*) FROM kept") == [(500,)]


def test_a_folder_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "agent.db").mkdir()
    with pytest.raises(StorageError, match="unable to open"):
        open_or_set_aside(tmp_path / "agent.db", synchronous="FULL")
    assert aside(tmp_path / "agent.db") == []


def test_one_that_lost_all_it_held_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "agent.db")
    path.write_bytes(b"")
    db, damage = open_or_set_aside(path, synchronous="FULL")
    with closing(db), db.transaction():
        db.execute("CREATE TABLE kept (value TEXT)")
    assert damage is not None
    assert "empty" in damage
    again, damage = open_or_set_aside(path, synchronous="FULL")
    again.close()
    assert damage is None


@pytest.fixture
def storage(tmp_path: Path) -> AgentStorage:
    opened = AgentStorage(tmp_path)
    for database in (opened.agent, opened.samples):
        with database.transaction():
            database.execute("CREATE TABLE kept (value TEXT)")
            database.execute_many("INSERT INTO kept VALUES (?)", [("x" * 500,) for _ in range(500)])
    return opened


@pytest.mark.parametrize("name", ["agent.db", "samples.db"])
def test_a_file_cut_off_in_use_is_seen_at_the_next_look_and_set_aside_at_the_close(
    storage: AgentStorage, tmp_path: Path, name: str
) -> None:
    for database in (storage.agent, storage.samples):
        database.query("PRAGMA wal_checkpoint(FULL)")
    assert storage.look() is None
    os.truncate(tmp_path / name, 4096)
    loss = storage.look()
    assert loss is not None
    assert (loss.name, loss.event) == (name, "database_damaged")
    storage.close()
    assert len(aside(tmp_path / name)) == 1
    again = AgentStorage(tmp_path)
    again.close()
    assert again.damage == {}


def test_a_file_removed_in_use_is_seen_at_the_next_look(storage: AgentStorage, tmp_path: Path) -> None:
    assert storage.look() is None
    (tmp_path / "samples.db").unlink()
    loss = storage.look()
    storage.close()
    assert loss is not None
    assert (loss.name, loss.event) == ("samples.db", "database_removed")


def test_only_the_newest_damage_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    for number in range(ASIDE_KEPT + 3):
        path.write_bytes(b"damaged %d" % number * 200)
        path.with_name("agent.db-wal").write_bytes(b"log")
        set_aside(path, "damaged")
        filled(path).unlink()
    kept = [file.read_bytes()[:9] for file in aside(path) if not file.name.endswith(("-wal", "-shm"))]
    assert sorted(kept) == [b"damaged 3", b"damaged 4"]
    assert sum(file.name.endswith("-wal") for file in aside(path)) == ASIDE_KEPT
