"""The child: feeds targets in turn, each an equal share of the time, under a limit on its address space."""

import logging
import random
import resource
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

import structlog

from tests.fuzz import agent, bridge, wire
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target

HEADROOM_BYTES = 512 * 1024 * 1024
CHECK_EVERY = 1000
FINDINGS_MOST = 20


@dataclass
class Tally:
    """What came of one target's inputs."""

    inputs: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    longest_s: float = 0.0

    def count(self, what: str) -> None:
        self.outcomes[what] = self.outcomes.get(what, 0) + 1


@dataclass
class Outcome:
    """What a run found."""

    tallies: dict[str, Tally]
    findings: list[dict[str, str]]
    first_rss_bytes: int
    peak_rss_bytes: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def input_of(target: Target, seed: int, number: int) -> bytes:
    """The same for the same seed, target and number."""
    return mutated(random.Random(f"{seed}/{target.name}/{number}"), target.seeds)


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """In memory where that can be had: the databases sync at every commit."""
    shm = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="clma-fuzz-", dir=shm if shm.is_dir() else None)


def build(directory: Path) -> list[Target]:
    """Every target."""
    return [*wire.targets(), *bridge.targets(directory), *agent.targets(directory)]


def child(
    writer: Connection, progress: "SynchronizedArray[int]", seconds: float, seed: int, only: str, keep: Path
) -> None:
    """The process that may die of it."""
    with scratch() as folder:
        targets = [target for target in build(Path(folder)) if target.name.startswith(only)]
        writer.send([target.name for target in targets])
        writer.send(fuzz(targets, progress, seconds=seconds, seed=seed, keep=keep).to_json())


def fuzz(
    targets: list[Target], progress: "SynchronizedArray[int]", *, seconds: float, seed: int, keep: Path
) -> Outcome:
    """Feed until the time is over; inputs that raise what they must not are kept as files."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for target in targets:
        for known in target.seeds:
            target.feed(known)  # warms up, and shows that a seed is a seed
        target.check()
    _limit_address_space()
    tallies = {target.name: Tally() for target in targets}
    findings: list[dict[str, str]] = []
    first_rss_bytes = _rss_bytes()
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and len(findings) < FINDINGS_MOST:
        target = min(targets, key=lambda each: tallies[each.name].seconds)
        progress[0] = targets.index(target)
        _some(target, tallies[target.name], progress, seed, findings, keep)
    return Outcome(tallies, findings, first_rss_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _some(
    target: Target,
    tally: Tally,
    progress: "SynchronizedArray[int]",
    seed: int,
    findings: list[dict[str, str]],
    keep: Path,
) -> None:
    """A tenth of a second of one target."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + 0.1 and len(findings) < FINDINGS_MOST:
        progress[1] = tally.inputs
        data = input_of(target, seed, tally.inputs)
        tally.inputs += 1
        fed_s = time.monotonic()
        try:
            came_of_it = target.feed(data)
            tally.count(came_of_it if isinstance(came_of_it, str) else "taken")
        except target.errors as error:
            tally.count(type(error).__name__)
        except Exception as error:
            tally.count(f"WRONG {type(error).__name__}")
            _keep(target, tally.inputs - 1, data, error, findings, keep)
        tally.longest_s = max(tally.longest_s, time.monotonic() - fed_s)
        if tally.inputs % CHECK_EVERY == 0:
            target.check()
    tally.seconds += time.monotonic() - began_s


def _keep(
    target: Target, number: int, data: bytes, error: Exception, findings: list[dict[str, str]], keep: Path
) -> None:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    if any(found["target"] == target.name and found["where"] == where for found in findings):
        return
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"{target.name.replace('/', '-')}-{number}.bin"
    path.write_bytes(data)
    story = "".join(traceback.format_exception(error)[-6:])[-3000:]
    findings.append({"target": target.name, "where": where, "input": str(path), "story": story})


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _limit_address_space() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM_BYTES, resource.RLIM_INFINITY))
