"""What a fast stream brings is held back for a moment, so that the monitors judge it together."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from edge_agent.drift.observed import Observed
from edge_agent.runtime.watch_batches import TOGETHER_ROWS
from edge_agent.samples.record import LabelledRow, SampleBatch
from edge_agent.serving.server import Prepared, Served

ServedPart = tuple[SampleBatch, Served]


class Shown(NamedTuple):
    """A served batch as it is held.

    Attributes:
        views: by monitor, what it sees of the batch, whose features are not held then; empty: they are.
    """

    batch: SampleBatch
    made: Served
    views: Mapping[str, Sequence[Observed]] = MappingProxyType({})

    @property
    def size_bytes(self) -> int:
        """Of all features."""
        own = sum(array.nbytes for one in self.batch.in_portions for array in one.values())
        return own + sum(piece.features.nbytes for pieces in self.views.values() for piece in pieces)


TOGETHER_S = 0.2
"""What alarms is told so much later at most; of batches of 32 only streams above 160 samples a second have several."""
MOST_ROWS, MOST_BYTES = TOGETHER_ROWS, 8 * 1024 * 1024
"""Of samples that are held: of more, each costs hardly less. Their features are held with them."""


class Held:
    """Samples and labels that one model in service has made, in their order.

    Args:
        together_s: from the last judgement on, what comes is held back for so long.
    """

    def __init__(self, together_s: float) -> None:
        self._together_s = together_s
        self._judged_s = -math.inf
        self.active: Prepared | None = None
        self._clear()

    def __bool__(self) -> bool:
        return bool(self._rows or self._served)

    def add(self, rows: list[LabelledRow], served: Sequence[Shown], active: Prepared) -> None:
        """After what is held already, which the same model has made."""
        self._rows += rows
        self._served += served
        self.active = active
        self._samples += sum(len(one.batch.ids) for one in served)
        self._size_bytes += sum(one.size_bytes for one in served)

    def may_wait(self, brought: bool, now_s: float | None) -> bool:
        """Whether what is held may be judged later; if not, it is taken to be judged now.

        Args:
            brought: whether something new has come.
            now_s: running time; None: not known.
        """
        few = max(len(self._rows), self._samples) < MOST_ROWS and self._size_bytes < MOST_BYTES
        if brought and few and now_s is not None and 0 <= now_s - self._judged_s < self._together_s:
            return True
        self._judged_s = -math.inf if now_s is None else now_s
        return False

    def taken(self) -> tuple[list[LabelledRow], list[Shown], Prepared]:
        """All of it, and the model; then nothing is held.

        Raises:
            RuntimeError: nothing was ever added.
        """
        if self.active is None:
            raise RuntimeError("nothing was held back")
        taken = self._rows, self._served, self.active
        self._clear()
        return taken

    def _clear(self) -> None:
        self._rows: list[LabelledRow] = []
        self._served: list[Shown] = []
        self._samples = self._size_bytes = 0
