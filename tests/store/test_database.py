from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from edge_agent.errors import ConfigError, StorageError
from server_bridge.store.database import Database
from server_bridge.store.store import Store, store_url
from server_bridge.store.tables import METADATA


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
