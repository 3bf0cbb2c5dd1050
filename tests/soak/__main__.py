"""``python -m tests.soak --kills N --seed S``: mixed kills over as many fleets as it takes, and a table."""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.e2e.toy import toy_bundle
from tests.soak.episode import Episode, live
from tests.soak.victims import KINDS

KILLS_A_FLEET = 7


def main() -> int:
    """Run, print the table, and return the exit status: 1 if anything must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        episodes = list(_episodes(Path(folder), arguments.kills, arguments.seed))
    print(table(episodes))
    return 1 if any(episode.problems for episode in episodes) else 0


def _episodes(folder: Path, kills: int, seed: int) -> Iterator[Episode]:
    bundle = toy_bundle(folder / "made").path
    left = kills
    number = 0
    while left > 0:
        fleet_seed = seed * 100_000 + number
        rng = Random(fleet_seed)
        kinds = [rng.choice(KINDS) for _ in range(min(left, KILLS_A_FLEET))]
        directory = folder / str(number)
        episode = live(directory, bundle, kinds, fleet_seed)
        left -= len(kinds)
        number += 1
        verdict = "; ".join(episode.problems) or "well"
        print(f"fleet {number} seed {fleet_seed}: {' '.join(kinds)}: {episode.recovery_s:.1f} s, {verdict}", flush=True)
        if not episode.problems:
            shutil.rmtree(directory)
        yield episode


def table(episodes: list[Episode]) -> str:
    """A row a kind, then the fleets."""
    rows = [f"{'killed':<22}{'kills':>7}{'hit':>6}"]
    kills = [kill for episode in episodes for kill in episode.kills]
    for kind in KINDS:
        mine = [kill for kill in kills if kill.kind == kind]
        rows.append(f"{kind:<22}{len(mine):>7}{sum(kill.hit for kill in mine):>6}")
    times = sorted(episode.recovery_s for episode in episodes)
    well = sum(not episode.problems for episode in episodes)
    rows.append(f"{'all':<22}{len(kills):>7}{sum(kill.hit for kill in kills):>6}")
    rows.append(
        f"fleets {len(episodes)}, of which well {well}; last kill to closed loop: "
        f"median {statistics.median(times):.1f} s, worst {times[-1]:.1f} s"
    )
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
