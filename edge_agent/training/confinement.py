"""How a worker confines itself: priority, memory, and death with its parent."""

import ctypes
import mmap
import os
import platform
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.training.job import WorkerLimits

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "armv7l": 314, "armv6l": 314}  # asm/unistd.h
_IOPRIO_WHO_PROCESS, _IOPRIO_CLASS_IDLE, _IOPRIO_CLASS_SHIFT = 1, 3, 13  # linux/ioprio.h
_STAT, _START_FIELD = Path("/proc/self/stat"), 19  # starttime, counted behind the name: proc(5)
_SESSION, _NICEST = Path("/proc/self/autogroup"), 19  # sched(7)
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


def age_s() -> float:
    """How long ago this process was started: its imports are part of the time that a job has."""
    started_ticks = int(_STAT.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[_START_FIELD])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK"))


def confine(limits: WorkerLimits) -> None:
    """Lower this process's priority and cap its address space, for good; short of memory, it goes before the agent."""
    os.nice(limits.nice)
    _run_when_idle(limits)
    _lower_the_session(limits)
    _read_when_idle()
    with suppress(OSError):  # where /proc is not ours to write the kernel chooses by size
        _OOM_SCORE.write_text(_FIRST_TO_GO, encoding="ascii")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    cap = limits.address_space_bytes if hard == resource.RLIM_INFINITY else min(limits.address_space_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run_when_idle(limits: WorkerLimits) -> None:
    """Give way to whoever wakes up, at once and not by a share: that is what serving waits for."""
    policy = {"idle": os.SCHED_IDLE, "batch": os.SCHED_BATCH, "normal": os.SCHED_OTHER}[limits.scheduling]
    with suppress(OSError):  # a sandbox may not let us: niceness is left
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _lower_the_session(limits: WorkerLimits) -> None:
    """Where the kernel shares by session (``sched_autogroup_enabled``) niceness counts within one alone.

    The worker leads one of its own: it would have as much of a processor as the agent, however nice it is.
    """
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # no such kernel, or /proc is not ours to write
            _SESSION.write_text(str(_NICEST if limits.scheduling == "idle" else limits.nice), encoding="ascii")


def _read_when_idle() -> None:
    """Disk requests of everybody else go first, where the I/O scheduler knows priorities."""
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_CLASS_IDLE << _IOPRIO_CLASS_SHIFT)


def is_at_its_cap() -> bool:
    """Whether not even a megabyte is left below the cap: libraries tell that in other words, SQLite as an I/O error."""
    try:
        mmap.mmap(-1, _PROBE_BYTES).close()
    except OSError:
        return True
    return False
