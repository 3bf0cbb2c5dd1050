import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from edge_agent.errors import ConfigError, StorageError
from server_bridge.errors import StoreDamaged, StoreRemoved
from server_bridge.store.database import Database
from server_bridge.store.store import Store, store_url
from server_bridge.store.tables import METADATA
from tests.store.stores import PAGE_BYTES, emptied, fill, garbage, opened, truncated, zeroed


def test_migrations_make_exactly_the_tables_of_the_code(tmp_path: Path) -> None:
    database = Database(store_url(tmp_path))
    with database.read() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
    database.close()
    assert differences == []


def test_reopening_keeps_what_was_written(tmp_path: Path) -> None:
    first = Store(store_url(tmp_path), tmp_path / "blobs")
    first.gateways.register("gw-1", 42, 1.0)
    digest = first.blobs.put(b"weights")
    first.close()
    second = Store(store_url(tmp_path), tmp_path / "blobs")
    assert [(row.id, row.node_id) for row in second.gateways.registered()] == [("gw-1", 42)]
    assert second.blobs.read(digest) == b"weights"
    second.close()


def test_a_store_of_the_first_schema_is_brought_up_with_its_rows(tmp_path: Path) -> None:
    first = Store(store_url(tmp_path), tmp_path / "blobs")
    first.gateways.register("gw-1", 42, 1.0)
    with first.database.write() as connection:
        for column in ("ignored_s", "ignored_why"):
            connection.execute(sa.text(f"ALTER TABLE gateways DROP COLUMN {column}"))
        connection.execute(sa.text("ALTER TABLE outbox_marks DROP COLUMN setbacks"))
        for table in ("cohorts", "cohort_moves", "cohort_merges"):
            connection.execute(sa.text(f"DROP TABLE {table}"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    first.close()
    second = Store(store_url(tmp_path), tmp_path / "blobs")
    assert [(row.id, row.ignored_s) for row in second.gateways.registered()] == [("gw-1", None)]
    assert second.gateways.ignore("gw-1", "why", 2.0)
    second.close()


def test_a_store_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    database = Database(store_url(tmp_path))
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(StorageError, match="9999"):
        Database(store_url(tmp_path))


def test_an_unknown_kind_of_database_is_an_operators_error() -> None:
    with pytest.raises(ConfigError, match="mysql"):
        Database("mysql://somewhere/x")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="store"):
        Database(store_url(tmp_path))


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_gone_ends_the_store_and_nothing_counts_as_stored(tmp_path: Path, how: str) -> None:
    """SQLite would go on without a word in a file without a name."""
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    store.gateways.register("gw-1", 1, 0.0)
    file = tmp_path / "store.db"
    file.rename(tmp_path / "moved")
    if how == "replaced":
        shutil.copy(tmp_path / "moved", file)
    with pytest.raises(StoreRemoved, match=f"store.db was {how} while in use"):
        store.gateways.register("gw-2", 2, 0.0)
    assert isinstance(store.database.loss, StoreRemoved)
    with pytest.raises(StoreRemoved):
        store.gateways.registered()
    store.close()
    assert not (tmp_path / "store.db-wal").exists(), "it must not be taken for the log of another file"


def test_damage_found_in_use_is_named_and_nothing_is_stored_any_more(tmp_path: Path) -> None:
    store = opened(fill(tmp_path).parent)
    store.database.engine.dispose()  # what is cached hides the damage
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek(PAGE_BYTES)
        file.write(bytes((tmp_path / "store.db").stat().st_size - PAGE_BYTES))
    with pytest.raises(StoreDamaged, match=r"store.db is damaged: .*malformed.*start the bridge"):
        store.flags.all()
    with pytest.raises(StoreDamaged):
        store.decisions.record("test", "a write", "that might still work", 0.0)
    store.close()


@pytest.mark.parametrize("damage", [zeroed, truncated, garbage, emptied])
def test_a_file_overwritten_in_use_is_seen_from_outside(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = opened(fill(tmp_path).parent)
    store.database.look()
    damage(tmp_path / "store.db")
    with pytest.raises(StoreDamaged, match=r"store.db was (cut|overwritten)"):
        store.database.look()
    with pytest.raises(StoreDamaged):
        store.gateways.registered()
    store.close()


def test_no_new_file_is_made_where_one_was_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "store.db").unlink()
    store.database.engine.dispose()  # the next use connects anew
    with pytest.raises(StoreRemoved):
        store.gateways.registered()
    assert not (tmp_path / "store.db").exists()
    store.close()


def test_looking_at_the_file_leaves_sqlite_its_locks(tmp_path: Path) -> None:
    """Without them another process, on leaving, takes itself for the last one and removes the log in use."""
    store = opened(tmp_path)
    store.gateways.register("gw-1", 1, 0.0)
    store.database.look()
    other = f"import sqlite3; c = sqlite3.connect({str(tmp_path / 'store.db')!r})"
    other += "; c.execute('SELECT count(*) FROM gateways').fetchone(); c.close()"
    subprocess.run([sys.executable, "-c", other], check=True)
    assert (tmp_path / "store.db-wal").exists()
    store.close()


def test_a_full_disk_is_named_and_is_no_damage(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with store.database.read() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    with pytest.raises(StorageError, match=r"store.db: database or disk is full \(check that its disk has room"):
        store.decisions.record("test", "filler", "x" * 1_000_000, 0.0)
    assert store.database.loss is None
    store.close()


def test_an_inner_transaction_joins_the_outer_one(tmp_path: Path) -> None:
    store = Store(store_url(tmp_path), tmp_path / "blobs")

    def half_done() -> None:
        with store.transaction():
            store.gateways.register("gw-1", 1, 0.0)
            store.decisions.record("test", "inner", "", 0.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert store.gateways.registered() == []
    assert store.decisions.recent() == []
    store.close()


def test_the_writer_reads_its_own_writes_and_others_see_them_after_commit(tmp_path: Path) -> None:
    store, other = (Store(store_url(tmp_path), tmp_path / "blobs") for _ in range(2))
    with store.transaction():
        store.gateways.register("gw-1", 1, 0.0)
        assert len(store.gateways.registered()) == 1
        assert other.gateways.registered() == []
    assert len(other.gateways.registered()) == 1
    store.close()
    other.close()


def test_a_password_is_never_quoted() -> None:
    for url in ("postgresql+nodriver://me:hunter2@db/fleet", "mysql://me:hunter2@db/fleet"):
        with pytest.raises(ConfigError, match=r"me:\*\*\*@db") as caught:
            Database(url)
        assert "hunter2" not in str(caught.value)
