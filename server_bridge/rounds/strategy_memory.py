"""What one adaptation leaves the next of its strategy: it helps, and is not needed."""

import structlog

from edge_agent.errors import DataError, StorageError
from server_bridge.flower.clma import CLMA
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.strategies import (
    StrategySettings,
    export_memory,
    import_memory,
    import_strategy,
    make_strategy,
)
from server_bridge.store.adaptations import Adaptation
from server_bridge.store.store import Store

_log = structlog.get_logger(__name__)


class StrategyMemory:
    """In the store's blobs; one that is lost is told, and done without.

    Args:
        store: adaptations and blobs.
        settings: of the strategy that remembers.
    """

    def __init__(self, store: Store, settings: StrategySettings) -> None:
        self._store = store
        self._settings = settings

    def remind(self, strategy: CLMA, bundle: str) -> None:
        """Let a strategy that has been placed know what the bundle's last adaptation left."""
        memory = self._store.adaptations.memories().get(bundle)
        if memory is None:
            return
        try:
            import_memory(strategy, decode_state(self._store.blobs.read(memory)))
        except (DataError, StorageError) as error:
            _log.warning("strategy-memory-lost", bundle=bundle, problem=error.problem)

    def kept(self, adaptation: Adaptation) -> str | None:
        """The blob of what the next adaptation needs of this one; of one without it the next begins without."""
        if adaptation.state is None:
            return None
        strategy = make_strategy(self._settings, flagged=lambda _: set())
        try:
            import_strategy(strategy, decode_state(self._store.blobs.read(adaptation.state)))
        except (DataError, StorageError) as error:
            _log.warning("strategy-memory-lost", bundle=adaptation.bundle, problem=error.problem)
            return None
        memory = export_memory(strategy)
        return None if memory is None else self._store.blobs.put(encode_state(memory))
