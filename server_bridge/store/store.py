"""The bridge's store: one database and one blob folder, narrow methods by topic."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server_bridge.store.adaptations import AdaptationTable
from server_bridge.store.blobs import BlobFolder
from server_bridge.store.commands import CommandTable
from server_bridge.store.counters import Counters
from server_bridge.store.counts import CountTable
from server_bridge.store.database import Database
from server_bridge.store.decisions import DecisionTable
from server_bridge.store.drops import DropTable
from server_bridge.store.events import EventTable
from server_bridge.store.flags import FlagTable
from server_bridge.store.gateways import GatewayTable
from server_bridge.store.lineage import LineageTable
from server_bridge.store.merges import MergeTable
from server_bridge.store.numbers import HighestNumbers


class Store:
    """Opens the store and migrates it.

    Args:
        url: a SQLAlchemy URL, see :class:`~server_bridge.store.database.Database`.
        blobs: the blob folder.
        numbers: where numbers that are given out are noted too.

    Raises:
        ConfigError: no such kind of database.
        StorageError: it cannot be opened or migrated.
    """

    def __init__(self, url: str, blobs: Path, numbers: HighestNumbers | None = None) -> None:
        self.blobs = BlobFolder(blobs)
        self.database = Database(url)
        self.counters = Counters(self.database, numbers)
        self.gateways = GatewayTable(self.database)
        self.flags = FlagTable(self.database)
        self.counts = CountTable(self.database)
        self.decisions = DecisionTable(self.database)
        setbacks = self.counters.value("setbacks")
        self.events = EventTable(self.database, self.flags, self.counts, self.decisions, setbacks)
        self.commands = CommandTable(self.database)
        self.adaptations = AdaptationTable(self.database)
        self.lineage = LineageTable(self.database)
        self.merges = MergeTable(self.database)
        self.drops = DropTable(self.database)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything that this thread writes inside commits together, or not at all."""
        with self.database.write():
            yield

    def trim(self) -> None:
        """Forget what is beyond the stated bounds; a telemetry log does not grow for ever."""
        self.events.trim()
        self.flags.trim()
        self.counts.trim()
        self.commands.trim()
        self.decisions.trim()
        self.lineage.trim()
        self.merges.trim()

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def store_url(data_dir: Path) -> str:
    """The default store in the bridge's folder."""
    return f"sqlite:///{data_dir / 'store.db'}"
