"""How many messages were dropped, by sender and reason."""

from collections.abc import Mapping

from sqlalchemy import select

from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import DROPS


class DropTable:
    """Drop counters that survive restarts.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add counts by (gateway, reason)."""
        with self._database.write() as connection:
            for (gateway, reason), count in counts.items():
                known = (DROPS.c.gateway == gateway, DROPS.c.reason == reason)
                before = connection.execute(select(DROPS.c.count).where(*known)).scalar() or 0
                upsert(connection, DROPS, {"gateway": gateway, "reason": reason, "count": before + count})

    def all(self) -> dict[tuple[str, str], int]:
        """Counts by (gateway, reason)."""
        with self._database.read() as connection:
            rows = connection.execute(select(DROPS)).all()
        return {(row.gateway, row.reason): row._mapping["count"] for row in rows}
