"""Two or more ways to do one thing, timed in turn on one core."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds of one way, the median over the runs."""

    name: str
    median_s: float
    runs: int


def interleave(ways: Mapping[str, Callable[[], object]], *, runs: int, warm_up: int = 2) -> list[Timing]:
    """Run every way once in each round, so that a noisy neighbour disturbs all alike.

    Args:
        ways: name to a callable that does the same work.
        runs: timed rounds.
        warm_up: rounds that are not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm_up + runs):
        for name, work in ways.items():
            began_s = time.process_time()
            work()
            if number >= warm_up:
                seconds[name].append(time.process_time() - began_s)
    return [Timing(name, statistics.median(values), len(values)) for name, values in seconds.items()]
