"""How far a worker is: told over a pipe, at most every second, and held against the time it has."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from edge_agent.wire.codec import Count, WireModel, decode, encode
from edge_agent.wire.errors import WireError

if TYPE_CHECKING:
    from edge_agent.training.descent import Place  # late: the agent reads progress and descends nowhere

TELL_S = 1.0
LINE_CAP_BYTES = 512
LEAST_RESERVE_SHARE = 0.1
SETUP_TIMES = 1.5

_Finite = Annotated[float, Field(allow_inf_nan=False)]


class Progress(WireModel):
    """Where a training is.

    Attributes:
        epochs: passes over the data done, of ``of_epochs``.
        loss: mean over the last batch, before its step.
    """

    steps: Count
    epochs: _Finite
    of_epochs: Count
    loss: _Finite


class Timekeeper:
    """Ends a descent so early that what it gave can still be scored, coded and written.

    Kept back is the larger of a tenth of the duration and one and a half times what came before the first step:
    reading, and scoring the base weights, is about what comes after the last one.

    Args:
        epochs: ordered.
        duration_s: from ``started_s`` to when the worker is killed.
        share: of the time for steps that this descent may take; others follow.
        tell: called with the progress, at most every second.
    """

    def __init__(
        self,
        epochs: int,
        duration_s: float,
        *,
        started_s: float,
        share: float = 1.0,
        tell: Callable[[Progress], None] = lambda _: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs = epochs
        self._duration_s = duration_s
        self._started_s = started_s
        self._share = share
        self._tell = tell
        self._monotonic_s = monotonic_s
        self._end_s: float | None = None
        self._told_s = started_s

    def stepped(self, place: "Place") -> bool:
        """Whether there is time for another step."""
        now_s = self._monotonic_s()
        if self._end_s is None:
            self._end_s = self._end(now_s)
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._tell(Progress(steps=place.steps, epochs=place.epochs, of_epochs=self._epochs, loss=place.loss))
        return now_s < self._end_s

    def _end(self, first_step_s: float) -> float:
        setup_s = first_step_s - self._started_s
        reserve_s = max(LEAST_RESERVE_SHARE * self._duration_s, SETUP_TIMES * setup_s)
        return first_step_s + self._share * (self._duration_s - setup_s - reserve_s)


def tell_over(descriptor: int, progress: Progress) -> None:
    """Write one line; a pipe that is full or closed costs the line, never the work."""
    with suppress(OSError):
        os.write(descriptor, encode(progress) + b"\n")


class ProgressPipe:
    """The reader's end of the worker's pipe; never waits.

    Args:
        descriptor: of the pipe; it is set not to block, and closed by :meth:`close`.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self.latest: Progress | None = None

    def read(self) -> Progress | None:
        """The latest progress told so far; what is no progress is passed over."""
        try:
            data = os.read(self._descriptor, 64 * LINE_CAP_BYTES)
        except OSError:
            return self.latest
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-LINE_CAP_BYTES:]
        for line in lines:
            with suppress(WireError):
                self.latest = decode(Progress, line, cap_bytes=LINE_CAP_BYTES)
        return self.latest

    def close(self) -> None:
        """Close the reader's end."""
        with suppress(OSError):
            os.close(self._descriptor)
