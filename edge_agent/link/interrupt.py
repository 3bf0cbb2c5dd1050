"""^C while a program is still loading: it has nothing to put away and says nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
"""The exit status that shells know an interrupt by."""


@contextmanager
def quiet_while_loading() -> Iterator[None]:
    """An interrupt inside ends the process at once, with status 130.

    Not by ``KeyboardInterrupt``: where it arises amid the imports of others some of them swallow it, and the rest is a
    traceback. One that is ignored (``nohup``, a job in the background) stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
