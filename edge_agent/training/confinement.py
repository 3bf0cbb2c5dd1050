"""How a worker confines itself: priority, memory, and death with its parent."""

import ctypes
import mmap
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.training.job import WorkerLimits

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_PROBE_BYTES = 1024 * 1024
_FIRST_TO_GO = "1000"  # OOM_SCORE_ADJ_MAX of linux/oom.h


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent_pid: the starter's process id; where it is gone already, this process exits now.

    Raises:
        ConfigError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise ConfigError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise SystemExit(1)


def confine(limits: WorkerLimits) -> None:
    """Lower this process's priority and cap its address space, for good; short of memory, it goes before the agent."""
    os.nice(limits.nice)
    with suppress(OSError):  # where /proc is not ours to write the kernel chooses by size
        _OOM_SCORE.write_text(_FIRST_TO_GO, encoding="ascii")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    cap = limits.address_space_bytes if hard == resource.RLIM_INFINITY else min(limits.address_space_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def is_at_its_cap() -> bool:
    """Whether not even a megabyte is left below the cap: libraries tell that in other words, SQLite as an I/O error."""
    try:
        mmap.mmap(-1, _PROBE_BYTES).close()
    except OSError:
        return True
    return False
