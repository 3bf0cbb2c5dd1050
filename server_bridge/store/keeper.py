"""The bridge's store from start to end: recovered, made safe to go on, copied, and given up when it is lost."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from server_bridge.errors import StoreDamaged, StoreRemoved
from server_bridge.store.copier import StoreCopier
from server_bridge.store.numbers import NUMBERS_FILE, HighestNumbers
from server_bridge.store.recovery import copies_of, database_file, recover, refuse_lost, require_present, suspect
from server_bridge.store.setback import advance, leap, raise_above, settle
from server_bridge.store.store import Store, store_url

BLOBS_FOLDER = "blobs"
LEDGER_FILE = "retained.json"
"""What the publisher has put on the broker: it is there once a bridge has run."""
AHEAD_AT_MOST = 10_000
"""A number further ahead is not believed: a gateway could burn our counters."""

_log = structlog.get_logger(__name__)


class StoreKeeper:
    """Opens the store; what a SQLite file needs beyond that, another database's administrator does.

    Args:
        url: of the store; ``None`` for the default one in ``data_dir``.
        data_dir: the bridge's folder.
        seen: the highest number by counter that releases show.

    Raises:
        ConfigError: no such kind of database.
        StorageError: it cannot be opened; or it is damaged or gone, and there is no sound copy.
    """

    def __init__(self, url: str | None, data_dir: Path, seen: Mapping[str, int]) -> None:
        url = url or store_url(data_dir)
        self._file = database_file(url)
        self._copies = None if self._file is None else copies_of(self._file)
        if self._file is not None and self._copies is not None:
            refuse_lost(self._file, self._copies, _traces(data_dir))
        restored = None if self._file is None or self._copies is None else recover(self._file, self._copies)
        self._numbers = HighestNumbers(data_dir / NUMBERS_FILE)
        self._leapt = False
        try:
            self.store = Store(url, data_dir / BLOBS_FOLDER, self._numbers)
            settle(self.store, self._numbers, seen, restored, time.time(), ran_before=(data_dir / LEDGER_FILE).exists())
        except StoreDamaged as error:
            self._suspect(error)
            raise

    def copier(
        self, interval_s: float, *, occasion: Callable[[], object], pause: Callable[[float], object]
    ) -> Callable[[], None] | None:
        """The step that copies the store when it is time; ``None`` where there is no file to copy.

        Args:
            interval_s: the longest between two copies.
            occasion: a value whose change makes a copy due at once.
            pause: waits up to so many seconds.
        """
        if self._copies is None:
            return None
        copier = StoreCopier(self._copies, interval_s, occasion=occasion, on_copied=self._copied, pause=pause)

        def step() -> None:
            try:
                copier.step()
            except StoreDamaged as error:
                self.store.database.give_up(error)
                raise

        return step

    def check(self) -> None:
        """The store is there and nothing wrong has been found with it.

        Raises:
            StoreDamaged, StoreRemoved: the process must end; its next start recovers.
        """
        database = self.store.database
        try:
            if database.loss is not None:
                raise database.loss
            database.look()
        except (StoreDamaged, StoreRemoved) as loss:
            _log.error("store-lost", problem=loss.problem, hint=loss.hint)
            if isinstance(loss, StoreDamaged):
                self._suspect(loss)
            raise

    def observe(self, name: str, number: int) -> None:
        """Somebody knows of this number of a counter.

        Raises:
            StorageError: the disk or the database refuses.
        """
        highest = self._numbers.value(name)
        if highest < number <= highest + AHEAD_AT_MOST:
            raise_above(self.store, self._numbers, name, number)
            _log.warning("number-ahead", counter=name, number=number, highest=highest)

    def folder_is_old(self, why: str) -> None:
        """Somebody holds releases that this folder does not know: it was put back whole, its numbers with it.

        Numbers leap, once in a start: a folder is put back between two, and a gateway may lie.

        Raises:
            StorageError: the disk or the database refuses.
        """
        if not self._leapt:
            self._leapt = True
            leap(self.store, self._numbers, why, time.time())

    def _copied(self) -> None:
        advance(self.store, self._numbers)

    def _suspect(self, error: StoreDamaged) -> None:
        if self._file is not None:
            try:
                suspect(self._file, error.problem)
            except StorageError as refused:  # the next start looks less closely, and the damage itself is being told
                _log.warning("suspicion-not-left", problem=refused.problem)


def _traces(data_dir: Path) -> list[Path]:
    return [data_dir / NUMBERS_FILE, data_dir / LEDGER_FILE]


def open_beside(url: str | None, data_dir: Path, *, founding: bool = False) -> Store:
    """The store for a command that runs beside the bridge, or without it.

    Args:
        url: of the store; ``None`` for the default one in ``data_dir``.
        data_dir: the bridge's folder.
        founding: registers gateways: an operator's way to begin again where a store is gone with all its copies.

    Raises:
        ConfigError: no such kind of database.
        StorageError: it cannot be opened, or is gone.
    """
    url = url or store_url(data_dir)
    file = database_file(url)
    if file is not None:
        require_present(file, copies_of(file))
        if not founding:
            refuse_lost(file, copies_of(file), _traces(data_dir))
    return Store(url, data_dir / BLOBS_FOLDER)
