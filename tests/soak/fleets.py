"""The fleets of a run: planned by seed, lived side by side, told in the order of their seeds."""

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.e2e.toy import toy_bundle
from tests.soak.episode import Episode, live
from tests.soak.victims import KINDS

KILLS_A_FLEET = 7
SEEDS_A_RUN = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What one fleet will go through."""

    seed: int
    kinds: tuple[str, ...]


def planned(kills: int, seed: int) -> list[Plan]:
    """The fleets of a run: each has its seed, from which its kills are drawn."""
    plans = []
    for number, first in enumerate(range(0, kills, KILLS_A_FLEET)):
        fleet_seed = seed * SEEDS_A_RUN + number
        rng = Random(fleet_seed)
        kinds = tuple(rng.choice(KINDS) for _ in range(min(kills - first, KILLS_A_FLEET)))
        plans.append(Plan(fleet_seed, kinds))
    return plans


def episodes(folder: Path, plans: Sequence[Plan], beside: int) -> Iterator[Episode]:
    """In the order of the plans, each as soon as it and all before it have ended."""
    lived = partial(_lived, folder, toy_bundle(folder / "made").path)
    # Processes, because alembic, which makes the bridges' stores, keeps its environment in its module.
    with ProcessPoolExecutor(beside, mp_context=get_context("spawn")) as pool:
        yield from pool.map(lived, plans)


def _lived(folder: Path, bundle: Path, plan: Plan) -> Episode:
    directory = folder / str(plan.seed)
    episode = live(directory, bundle, plan.kinds, plan.seed)
    if episode.well:
        shutil.rmtree(directory)
    return episode
