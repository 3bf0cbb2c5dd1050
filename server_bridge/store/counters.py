"""Numbers that only rise: cohort ids, weights versions, adaptation ids."""

from sqlalchemy import select

from server_bridge.store.database import Database, upsert
from server_bridge.store.numbers import HighestNumbers
from server_bridge.store.tables import COUNTERS


class Counters:
    """Named counters, never reused.

    Args:
        database: where they are kept.
        numbers: where they are noted too, so that a restored database does not give one again.
    """

    def __init__(self, database: Database, numbers: HighestNumbers | None = None) -> None:
        self._database = database
        self._numbers = numbers

    def next(self, name: str) -> int:
        """Raise the counter by one and return it; the first is 1.

        Raises:
            StorageError: the disk refuses.
        """
        with self._database.write() as connection:
            value = self.value(name) + 1
            if self._numbers is not None:
                self._numbers.note(name, value)
            upsert(connection, COUNTERS, {"name": name, "value": value})
        return value

    def raise_to(self, name: str, floor: int) -> None:
        """Make sure that the next number lies above ``floor``."""
        with self._database.write() as connection:
            if floor > self.value(name):
                upsert(connection, COUNTERS, {"name": name, "value": floor})

    def value(self, name: str) -> int:
        """The last number given out; 0 if none was."""
        with self._database.read() as connection:
            found = connection.execute(select(COUNTERS.c.value).where(COUNTERS.c.name == name)).scalar()
        return int(found or 0)
