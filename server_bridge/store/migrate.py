"""Brings a database to the newest schema with the migrations that ship in the package."""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from edge_agent.errors import StorageError

MIGRATIONS = Path(__file__).parent / "migrations"


def scripts() -> ScriptDirectory:
    """The migrations of this version of the program."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


def upgrade(engine: Engine) -> None:
    """Run what is missing, in one transaction.

    Raises:
        StorageError: the database was written by a newer version.
    """
    directory = scripts()
    head = directory.get_current_head()
    with engine.connect() as connection:
        if MigrationContext.configure(connection).get_current_revision() == head:
            return
    with engine.connect() as connection, connection.begin():
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _run(connection, directory)


def _run(connection: Connection, directory: ScriptDirectory) -> None:
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in directory.walk_revisions()}
    if current is not None and current not in known:
        raise StorageError(
            f"the store has schema {current!r}, unknown to this version",
            "run the version that wrote it, or a newer one",
        )

    def steps(revision: str | tuple[str, ...], _context: MigrationContext) -> list[RevisionStep]:
        return list(directory._upgrade_revs("head", revision))  # type: ignore[arg-type]  # alembic's own idiom

    with EnvironmentContext(Config(), directory, fn=steps) as environment:
        environment.configure(connection=connection, target_metadata=None, transactional_ddl=False)
        environment.run_migrations()
