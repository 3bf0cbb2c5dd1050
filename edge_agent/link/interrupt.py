"""Signals that end a program: while it is still loading, and while it runs."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


def stop_on_signals(stopping: threading.Event) -> None:
    """From now on SIGTERM and SIGINT set ``stopping``; call it on the main thread.

    The handler only writes to a pipe that a thread reads: it runs on the main thread, which may just then hold the
    event's lock because it waits for the event, and setting the event needs that lock.
    """
    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def note(number: int, frame: FrameType | None) -> None:
        with suppress(BlockingIOError):  # full: it has been told often enough
            os.write(tell, b"\0")

    def wait() -> None:
        os.read(told, 1)
        stopping.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
