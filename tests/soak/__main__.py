"""``python -m tests.soak --kills N --seed S --beside B``: mixed kills over as many fleets as it takes, and a table."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.e2e.toy import toy_bundle
from tests.soak.episode import Episode, live
from tests.soak.table import line, table
from tests.soak.victims import KINDS

KILLS_A_FLEET = 7
SEEDS_A_RUN = 100_000
BESIDE = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What one fleet will go through."""

    seed: int
    kinds: tuple[str, ...]


def main() -> int:
    """Run, print the table, and return the exit status: 1 if anything must not be or a kill missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=int, default=BESIDE, help=f"fleets at once (default {BESIDE})")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="fleets of these seeds and no others")
    given = parser.parse_args()
    plans = [plan for plan in planned(given.kills, given.seed) if given.only is None or plan.seed in given.only]
    if not plans:
        parser.error("no fleet of this run has such a seed")
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    began_s = time.monotonic()
    episodes = list(_episodes(folder, plans, given.beside))
    print(table(episodes, time.monotonic() - began_s))
    if all(episode.well for episode in episodes):
        shutil.rmtree(folder)
        return 0
    print(f"folders of the fleets that are not well: {folder}")
    return 1


def planned(kills: int, seed: int) -> list[Plan]:
    """The fleets of a run: each has its seed, from which its kills are drawn."""
    plans = []
    for number, first in enumerate(range(0, kills, KILLS_A_FLEET)):
        fleet_seed = seed * SEEDS_A_RUN + number
        rng = Random(fleet_seed)
        kinds = tuple(rng.choice(KINDS) for _ in range(min(kills - first, KILLS_A_FLEET)))
        plans.append(Plan(fleet_seed, kinds))
    return plans


def _episodes(folder: Path, plans: Sequence[Plan], beside: int) -> Iterator[Episode]:
    """In the order of the seeds, each as soon as it and all before it have ended."""
    lived = partial(_lived, folder, toy_bundle(folder / "made").path)
    # Processes, because alembic, which makes the bridges' stores, keeps its environment in its module.
    with ProcessPoolExecutor(beside, mp_context=get_context("spawn")) as pool:
        for episode in pool.map(lived, plans):
            print(line(episode), flush=True)
            yield episode


def _lived(folder: Path, bundle: Path, plan: Plan) -> Episode:
    directory = folder / str(plan.seed)
    episode = live(directory, bundle, plan.kinds, plan.seed)
    if episode.well:
        shutil.rmtree(directory)
    return episode


if __name__ == "__main__":
    sys.exit(main())
