"""One fleet's life under kills: seeded, told, judged."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from edge_agent.errors import TransientError
from tests.soak.invariants import is_closed, violations
from tests.soak.victims import Kill, Victims

CLOSE_S = 240.0
FIRST_S = (0.5, 6.0)
BETWEEN_S = (0.2, 3.0)
ROUNDS = 4
SPARE_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Episode:
    """What a fleet went through and what came of it.

    Attributes:
        recovery_s: from the last kill to the closed loop, as told by states sent after all were started again.
        problems: what must not be; empty if all is well.
    """

    seed: int
    kills: tuple[Kill, ...]
    recovery_s: float
    problems: tuple[str, ...]

    @property
    def well(self) -> bool:
        """Whether every kill hit and nothing is as it must not be."""
        return not self.problems and all(kill.hit for kill in self.kills)


# The signal itself: it came before a process that had just been started again could take it.
STOPPED = (0, -signal.SIGTERM)


def live(directory: Path, bundle: Path, kinds: Sequence[str], seed: int) -> Episode:
    """Kill in the given kinds, shuffled, at seeded moments; wait until the loop closes; judge."""
    rng = Random(seed)
    order = list(kinds)
    rng.shuffle(order)
    order.sort(key=lambda kind: kind != "worker")  # later there may be no training left to kill
    if len(order) > 1 and seed % 2:
        order[0], order[1] = order[1], order[0]
    rounds = max(ROUNDS, order.count("worker") + SPARE_ROUNDS)
    victims = Victims(directory, rng, bundle, rounds)
    problems: list[str] = []
    try:
        time.sleep(rng.uniform(*FIRST_S))
        for number, kind in enumerate(order):
            if number > 0 and kind != "worker":  # which comes when it comes
                time.sleep(rng.uniform(*BETWEEN_S))
            victims.strike(kind)
        fleet, since_s = victims.fleet, time.time()
        fleet.wait("the loop to close", lambda store: is_closed(fleet, store, since_s), timeout_s=CLOSE_S)
    except (AssertionError, OSError, TransientError) as error:
        problems.append(f"not closed: {error}")
    finally:
        recovery_s = victims.age_s - (victims.kills[-1].at_s if victims.kills else 0.0)
        statuses = victims.close()
    problems += [f"{name} ended with {status}" for name, status in statuses.items() if status not in STOPPED]
    return Episode(seed, tuple(victims.kills), recovery_s, (*problems, *violations(victims.fleet)))
