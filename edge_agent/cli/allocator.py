"""The C library's allocator, set for a process of many quiet threads."""

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8  # malloc.h of glibc


def share_one_arena() -> None:
    """All threads take memory from one place; call before the first thread starts.

    glibc gives each thread a heap of its own, and what one of them has freed no other can use: 2 MB
    of an agent's (measured). The threads here wait for Python's lock, not for the allocator's.
    Other C libraries have no such setting, and need none.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
