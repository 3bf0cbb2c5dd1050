"""Outputs of the latest chunks at hand: labels come soon after their samples."""

from collections import OrderedDict

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.chunk import Chunk, open_outputs

HELD_BYTES = 4 * 1024 * 1024
_log = structlog.get_logger(__name__)


class HeldOutputs:
    """What models said of the samples of chunks, read where it is not held; at most `HELD_BYTES`, or one chunk's."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._held: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._held_bytes = 0

    def of(self, chunk: Chunk) -> NDArray[np.float32] | None:
        """(n, k) the primary outputs; None: they are not what was written."""
        held = self._held.get(chunk.first)
        if held is None:
            try:
                rows = self._db.query("SELECT outputs FROM chunk WHERE first = ?", (chunk.first,))
                held = open_outputs(rows[0][0], chunk.first, len(chunk.ids))
            except DataError as error:
                _log.error("outputs_spoilt", first=chunk.ids[0], problem=str(error))
                return None
            self.hold(chunk.first, held)
        return held

    def hold(self, first: int, outputs: NDArray[np.float32]) -> None:
        """Keep the outputs of a chunk, in place of those that were held of it."""
        self.drop(first)
        self._held[first] = outputs
        self._held_bytes += outputs.nbytes
        while self._held_bytes > HELD_BYTES and len(self._held) > 1:
            self._held_bytes -= self._held.popitem(last=False)[1].nbytes

    def drop(self, first: int) -> None:
        """Hold a chunk's no longer."""
        held = self._held.pop(first, None)
        self._held_bytes -= 0 if held is None else held.nbytes

    def clear(self) -> None:
        """Hold none."""
        self._held.clear()
        self._held_bytes = 0
