"""Between orders and personal values: what a round begins with, and where its values stay."""

from collections.abc import Callable
from pathlib import Path

import structlog

from edge_agent.errors import DataError, WireError
from edge_agent.link.durable import read_file
from edge_agent.ota.slot import Slot
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import decode_weights

_log = structlog.get_logger(__name__)


class PersonalRounds:
    """Personal values for rounds and evaluations of the bundle that serves.

    Args:
        store: whose personal values.
        served: what serves now.
    """

    def __init__(self, store: WeightsStore, served: Callable[[], Slot]) -> None:
        self._store = store
        self._served = served

    def file_for_training(self, action: Train) -> Path | None:
        """The values that a round begins with; None: the bundle's own."""
        bundle = self._store.bundle(action.bundle)
        if bundle is None:
            return None
        return self._store.personal.file_at_round_start(bundle, action.adaptation, action.round, self._served().weights)

    def file_for_evaluation(self) -> Path | None:
        """The values that serve, which stand for this gateway beside whatever weights; None: the bundle's own."""
        served = self._served()
        bundle = self._store.bundle(served.bundle)
        return None if bundle is None else self._store.personal.file_beside(bundle, served.weights)

    def keep(self, action: Train, file: Path) -> None:
        """Keep what a round made of the personal tensors, until the adaptation's release.

        Raises:
            DataError: they do not fit the bundle or are not finite (named); nothing is kept.
            StorageError: the disk refused; nothing is kept.
        """
        bundle = self._store.bundle(action.bundle)
        if bundle is None:
            return
        try:
            values = decode_weights(read_file(file))
        except WireError as error:
            raise DataError(f"the round's personal values: {error.problem}") from None
        self._store.personal.keep_round(bundle, action.adaptation, action.round, self._served().weights, values)
        _log.info("personal-values-kept", adaptation=action.adaptation, round=action.round)
