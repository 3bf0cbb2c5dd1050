import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, DatabaseCorrupt, open_database, open_read_only

TABLE = ("CREATE TABLE thing (id INTEGER PRIMARY KEY, data BLOB)",)


class Opener:
    """Opens databases and closes them all at the end."""

    def __init__(self) -> None:
        self.opened: list[Database] = []

    def __call__(self, path: Path, max_bytes: int | None = None) -> Database:
        database = open_database(path, max_bytes=max_bytes)
        self.opened.append(database)
        database.define("thing", TABLE)
        return database

    def read_only(self, path: Path) -> Database:
        database = open_read_only(path)
        self.opened.append(database)
        return database


@pytest.fixture
def opener() -> Iterator[Opener]:
    made = Opener()
    yield made
    for database in made.opened:
        database.close()


def _ids(database: Database) -> list[int]:
    return [int(row[0]) for row in database.query("SELECT id FROM thing ORDER BY id")]


def _add(database: Database, identity: int, data: bytes = b"") -> None:
    database.execute("INSERT INTO thing VALUES (?, ?)", (identity, data))


class Stop(Exception):
    pass


def test_a_committed_row_is_there_after_reopening(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    with database.transaction():
        _add(database, 1)
    database.close()
    assert _ids(opener(tmp_path / "a.db")) == [1]


def test_an_exception_rolls_the_whole_transaction_back(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")

    def work() -> None:
        with database.transaction():
            _add(database, 1)
            with database.transaction():
                _add(database, 2)
            raise Stop

    with pytest.raises(Stop):
        work()
    assert _ids(database) == []


def test_an_inner_transaction_can_fail_alone(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")

    def fail() -> None:
        with database.transaction():
            _add(database, 2)
            raise Stop

    with database.transaction():
        _add(database, 1)
        with pytest.raises(Stop):
            fail()
        with database.transaction():
            _add(database, 3)
    assert _ids(database) == [1, 3]


def test_writing_outside_a_transaction_is_a_programming_error(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    with pytest.raises(RuntimeError):
        _add(database, 1)
    with pytest.raises(RuntimeError):
        database.execute_many("INSERT INTO thing VALUES (?, NULL)", [(1,)])


def test_two_threads_do_not_mix_their_transactions(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    failures: list[BaseException] = []

    def work(start: int, fail: bool) -> None:
        try:
            for step in range(50):
                try:
                    with database.transaction():
                        _add(database, start + 2 * step)
                        if fail:
                            raise Stop
                except Stop:
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number, bool(number))) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert _ids(database) == list(range(0, 100, 2))


def test_definitions_are_applied_once_and_extended(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    database.define("thing", TABLE)
    database.define("thing", (*TABLE, "ALTER TABLE thing ADD COLUMN extra INTEGER"))
    database.define("other", ("CREATE TABLE other (id INTEGER)",))
    with database.transaction():
        database.execute("INSERT INTO thing VALUES (1, NULL, 2)")
    assert database.query("SELECT extra FROM thing") == [(2,)]


def test_a_file_of_a_newer_version_is_refused(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    with pytest.raises(StorageError, match="version 1, this program knows 0"):
        database.define("thing", ())


def test_a_failing_definition_leaves_nothing(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    with pytest.raises(StorageError):
        database.define("other", ("CREATE TABLE other (id INTEGER)", "no sql"))
    assert database.query("SELECT name FROM sqlite_schema WHERE name = 'other'") == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"\x07" * len(data),
        lambda data: bytes(len(data)),
        lambda data: bytes(100) + data[100:],
        lambda data: data[: len(data) // 2 + 100],
        lambda data: data[:4096] + b"\xff" * 4096 + data[8192:],
    ],
    ids=["random", "all-zero", "zeroed-header", "truncated", "broken-page"],
)
def test_a_corrupt_file_is_named(opener: Opener, tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "broken.db"
    database = opener(path)
    with database.transaction():
        for number in range(50):
            _add(database, number, bytes(1000))
    database.close()
    assert callable(spoil)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(StorageError, match=r"broken\.db"):
        opener(path)


def test_a_full_disk_is_a_storage_error_and_the_database_goes_on(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db", max_bytes=100_000)
    with database.transaction():
        _add(database, 1)
    with pytest.raises(StorageError, match="full"), database.transaction():
        _add(database, 2, bytes(200_000))
    with database.transaction():
        _add(database, 3)
    assert _ids(database) == [1, 3]


def test_a_swallowed_disk_full_error_cannot_commit_half(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db", max_bytes=100_000)

    def swallow() -> None:
        with database.transaction():
            _add(database, 1)
            database.execute("ROLLBACK")  # what SQLite does by itself when the disk is full
            _add(database, 3)

    with pytest.raises(StorageError, match="rolled back"):
        swallow()
    assert _ids(database) == []


def test_a_reader_sees_one_consistent_view_and_cannot_write(opener: Opener, tmp_path: Path) -> None:
    writer = opener(tmp_path / "a.db")
    reader = opener.read_only(tmp_path / "a.db")
    with reader.transaction():
        assert _ids(reader) == []
        with writer.transaction():
            _add(writer, 1)
        assert _ids(reader) == []
    assert _ids(reader) == [1]
    with pytest.raises(StorageError, match="readonly"), reader.transaction():
        _add(reader, 2)


def test_reading_an_absent_database_names_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent\.db"):
        open_read_only(tmp_path / "absent.db")


def test_a_lock_held_by_another_process_ends_in_a_storage_error(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_agent.link.database.BUSY_TIMEOUT_S", 0.1)
    database = opener(tmp_path / "a.db")
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"), database.transaction():
        pass
    other.close()
    with database.transaction():
        _add(database, 1)


def test_a_closed_database_refuses(opener: Opener, tmp_path: Path) -> None:
    database = opener(tmp_path / "a.db")
    database.close()
    with pytest.raises(StorageError), database.transaction():
        pass


def test_damage_seen_in_use_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(open_database(path)) as db, db.transaction():
        db.execute("CREATE TABLE kept (value TEXT)")
        db.execute_many("INSERT INTO kept VALUES (?)", [("x" * 500,) for _ in range(500)])
    with closing(open_read_only(path)) as db:
        assert db.damage is None
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(b"\xff" * (size - 8192))
        with pytest.raises(DatabaseCorrupt):
            db.query("SELECT value FROM kept")
        assert db.damage is not None


@pytest.mark.parametrize("change", ["deleted", "replaced", "its folder deleted"])
def test_a_file_removed_in_use_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "folder" / "kept.db"
    path.parent.mkdir()
    with closing(open_database(path)) as db:
        db.define("kept", ("CREATE TABLE kept (value INTEGER)",))
        assert not db.is_removed
        if change == "replaced":
            path.with_name("other").write_bytes(b"")
            path.with_name("other").replace(path)
        elif change == "deleted":
            path.unlink()
        else:
            shutil.rmtree(path.parent)
        assert db.is_removed


@pytest.mark.parametrize("count", [0, 1, 299, 300, 301, 1000])
def test_many_rows_in_few_statements(tmp_path: Path, count: int) -> None:
    with closing(open_database(tmp_path / "d.db")) as database:
        database.define("t", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)",))
        rows = [(number, f"n{number}") for number in range(count)]
        with database.transaction():
            assert database.execute_values("INSERT INTO t", rows) == count
            assert database.execute_values("INSERT OR IGNORE INTO t (a, b)", rows) == 0
        assert database.query("SELECT a, b FROM t ORDER BY a") == rows


def test_one_bad_row_of_many_undoes_them_all(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "d.db")) as database:
        database.define("t", ("CREATE TABLE t (a INTEGER PRIMARY KEY)",))
        with pytest.raises(StorageError), database.transaction():
            database.execute_values("INSERT INTO t", [(number,) for number in (*range(700), 3)])
        assert database.query("SELECT count(*) FROM t") == [(0,)]
