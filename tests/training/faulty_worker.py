"""The worker with a fault: ``python -m tests.training.faulty_worker FAULT JOB.json``.

``full-K``: from the K-th step on that would take room or make an entry the disk is full; ``full-K-once``: at that step
alone; ``clock``: the wall clock jumps by years whenever it is asked. The number of such steps goes to standard error.
"""

import errno
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_agent.link.durable import FileOperations
from edge_agent.training.worker import main

STEPS = ("create", "open_part", "write_at", "sync", "rename", "sync_directory", "make_directory")
YEARS_S = 10 * 365 * 86400.0


class Disk:
    """Refuses at its k-th step, and at every one after it unless ``once``; ``k`` 0 never."""

    def __init__(self, k: int, *, once: bool) -> None:
        self.steps = 0
        self._k, self._once = k, once

    def install(self) -> None:
        for name in STEPS:
            setattr(FileOperations, name, self._counted(getattr(FileOperations, name)))

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(files: FileOperations, *arguments: Any) -> Any:
            self.steps += 1
            if self._k and (self.steps == self._k or (self.steps > self._k and not self._once)):
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(files, *arguments)

        return operation


def let_the_clock_jump() -> None:
    real, jumps = time.time, itertools.cycle([YEARS_S, -YEARS_S, 0.0])
    time.time = lambda: real() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)


def run(fault: str, job: Path) -> int:
    """The worker's exit status."""
    kind, _, rest = fault.partition("-")
    number, _, once = rest.partition("-")
    disk = Disk(int(number or 0), once=bool(once))
    disk.install()
    if kind == "clock":
        let_the_clock_jump()
    status = main([str(job)])
    sys.stderr.write(f"\nsteps {disk.steps}\n")
    return status


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1], Path(sys.argv[2])))
