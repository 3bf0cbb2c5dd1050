"""Damage that nobody reads, found while the database is in use."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.link.database import Database, DatabaseCorrupt, find_damage, open_database
from edge_agent.runtime.soundness import SoundnessCheck

PAGE_BYTES = 4096


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(open_database(tmp_path / "samples.db")) as opened:
        with opened.transaction():
            opened.execute("CREATE TABLE kept (value TEXT)")
            opened.execute_many("INSERT INTO kept VALUES (?)", [("x" * 500,) for _ in range(1000)])
        opened.query("PRAGMA wal_checkpoint(FULL)")
        assert opened.query("SELECT count(*) FROM kept") == [(1000,)]
        yield opened


def overwrite(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(b"\xee" * PAGE_BYTES)


def check(database: Database) -> SoundnessCheck:
    begun = SoundnessCheck((database,), least_interval_s=0.05)
    begun.start()
    return begun


def until_damaged(database: Database) -> None:
    deadline_s = time.monotonic() + 60.0
    while database.damage is None and time.monotonic() < deadline_s:
        time.sleep(0.01)


@pytest.mark.parametrize("page", [0, 1, 40])
def test_a_page_overwritten_in_use_is_found(database: Database, page: int) -> None:
    running = check(database)
    overwrite(database.path, page)
    until_damaged(database)
    running.stop(5.0)
    assert database.damage is not None
    assert database.look() == database.damage


def test_a_sound_database_is_written_on_meanwhile(database: Database) -> None:
    running = check(database)
    for number in range(200):
        with database.transaction():
            database.execute("INSERT INTO kept VALUES (?)", (f"{number}",))
    time.sleep(0.2)
    running.stop(5.0)
    assert (database.damage, database.look(), running.failure) == (None, None, None)
    assert database.query("SELECT count(*) FROM kept") == [(1200,)]


def test_a_file_that_is_gone_is_no_damage_and_does_not_end_the_check(database: Database) -> None:
    running = check(database)
    database.path.unlink()
    time.sleep(0.2)
    assert running.alive
    running.stop(5.0)
    assert database.damage is None


def test_rows_without_sense_are_damage(database: Database) -> None:
    with pytest.raises(DatabaseCorrupt, match="makes no sense"), database.understood():
        int("x" * 500)
    assert database.damage is not None
    assert find_damage(database.path) is None
