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
    traceback. One that is ignored (``nohup``, a job in the background) stays so. For the same reason a SIGTERM that the
    program has a handler of its own for is handled after what is being loaded.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    try:
        with _terminated_afterwards():
            yield
    finally:
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _terminated_afterwards() -> Iterator[None]:
    """A SIGTERM inside waits for the end, if there is a handler for it; else it is what it always was."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler):
        yield
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is note:
            signal.signal(signal.SIGTERM, handler)
        if asked:
            signal.raise_signal(signal.SIGTERM)


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
