"""What is kept of the peers' runs, what is still to be run, and how long that takes."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.benchmarks.drift_data.measure import NOT_RUN, TARGET, Swept
from tests.benchmarks.drift_data.peers import Peer, result
from tests.benchmarks.drift_data.streams import Drawn

MINUTE_S = 60


@dataclass(slots=True)
class Progress:
    """Peers on data sets, those that a folder keeps left out; says after each how much time is left.

    Attributes:
        work: the folder.
        todo: peer and data set, in the order in which they are run.
        kept: how many were there.
        done, spent_s, planned_s: runs so far, what they took by the clock, and what they were expected to.
    """

    work: Path
    todo: list[tuple[Peer, str]]
    kept: int
    done: int = 0
    spent_s: float = 0.0
    planned_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, peers: Sequence[Peer], tasks: Sequence[str], work: Path) -> "Progress":
        """What of all peers on all data sets a folder has."""
        every = [(peer, task) for task in tasks for peer in peers]
        todo = [(peer, task) for peer, task in every if not result(peer, task, work).exists()]
        return cls(work, todo, len(every) - len(todo))

    @property
    def left_s(self) -> float:
        """By what peers took when they were measured, and how much slower this machine has been so far."""
        slower = self.spent_s / self.planned_s if self.planned_s else 1.0
        return slower * sum(peer.expected_s for peer, _ in self.todo[self.done :])

    def told(self, *, run: bool = True) -> str:
        """Before the first run; ``run``: whether there is to be one."""
        if not run:
            return f"peers: {self.kept} results are kept in {self.work}, {len(self.todo)} are missing and left out"
        if not self.todo:
            return f"peers: all {self.kept} results are kept in {self.work}, none is run again"
        return (
            f"peers: {self.kept} results are kept in {self.work} and not run again, {len(self.todo)} to run, "
            f"about {minutes(self.left_s)} on a quiet machine; ended early, the same command goes on from there"
        )

    def start(self) -> None:
        """A run begins."""
        self.began_s = time.monotonic()

    def end(self, swept: Swept) -> str:
        """A run has ended: how it came out, and what is left."""
        peer, task = self.todo[self.done]
        took_s = time.monotonic() - self.began_s
        self.done, self.spent_s, self.planned_s = self.done + 1, self.spent_s + took_s, self.planned_s + peer.expected_s
        starts = min(int((alarms[TARGET] != NOT_RUN).sum()) for alarms in swept.alarms.values())
        rate = swept.rates[TARGET]
        return (
            f"  {self.done} of {len(self.todo)}: {peer.name} on {task}, {rate:.1e} false alarms a batch, "
            f"{starts} starting points, {minutes(took_s)}; about {minutes(self.left_s)} left"
        )


def minutes(seconds: float) -> str:
    """For people."""
    return f"{seconds:.0f} s" if seconds < MINUTE_S else f"{seconds / MINUTE_S:.0f} min"


def claim(work: Path, drawn: Drawn, part: str) -> None:
    """Notes which streams a folder is about.

    Raises:
        ValueError: it holds what peers found on others.
    """
    print_of = fingerprint(drawn)
    note = work / f"{drawn.task.name}-{part}.streams"
    if note.exists() and note.read_text(encoding="ascii") != print_of:
        raise ValueError(
            f"{work} keeps results of other {part} streams of {drawn.task.name}: give --work another folder"
        )
    note.write_text(print_of, encoding="ascii")


def fingerprint(drawn: Drawn) -> str:
    """Of all losses, begins and references, in hexadecimal digits."""
    digest = hashlib.sha256()
    for streams in (drawn.stationary, *drawn.drifts.values()):
        for values in (streams.losses, streams.begins, streams.groups):
            digest.update(np.ascontiguousarray(values).tobytes())
    for _, judged in drawn.references:
        digest.update(np.ascontiguousarray(judged.losses).tobytes())
    return digest.hexdigest()
