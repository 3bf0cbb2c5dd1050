"""``python -m tests.soak --kills N --seed S --beside B``: mixed kills over as many fleets as it takes, and a table."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.fleets import episodes, planned
from tests.soak.table import line, table

BESIDE = 3


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
    lived = []
    for episode in episodes(folder, plans, given.beside):
        print(line(episode), flush=True)
        lived.append(episode)
    print(table(lived, time.monotonic() - began_s))
    if all(episode.well for episode in lived):
        shutil.rmtree(folder)
        return 0
    print(f"folders of the fleets that are not well: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
