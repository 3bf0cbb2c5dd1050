"""``python -m tests.benchmarks drift_monitors [--quick]``: how late a drift is told, at the same false-alarm rate.

Our monitors beside the detectors of river, frouros and alibi-detect, each in an environment of its own, on the same
streams of real rows: gas sensors, a turbine, insects, electricity. Thresholds are swept until all have the same
measured rate of false alarms; then sudden, gradual, recurring and incremental drifts, and those that the data hold.
With labels (losses or errors), without (features, outputs, embeddings), what a sample costs, and what share of the
agent's loop that is.
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.drift_data import cost, label_free, ours, peers, share
from tests.benchmarks.drift_data.keep import add, save
from tests.benchmarks.drift_data.measure import Swept
from tests.benchmarks.drift_data.progress import Progress, claim
from tests.benchmarks.drift_data.streams import Drawn, Extent, draw
from tests.benchmarks.drift_data.tasks import TASKS, load
from tests.benchmarks.drift_data.verdict import Cell, cells, table
from tests.benchmarks.report import RESULTS
from tests.shared_data import DATA

SEED = 0
PARTS = ("labelled", "unlabelled", "cost", "share")
QUICK = Extent(references=2, stationary=12, batches=100, starts=8, after=1000)
WIDE = Extent(stationary=60, batches=300, starts=72, after=2000)
EXTENTS = {"labelled": Extent(), "unlabelled": WIDE}
BUDGET_S = 3.0
WORK = peers.CACHE.parent / "drift_monitors"
RIVALS = {"labelled": peers.LABELLED, "unlabelled": peers.UNLABELLED}
OWN = {"labelled": frozenset(ours.MONITORS), "unlabelled": frozenset({label_free.NAME})}


def main(arguments: Sequence[str]) -> None:
    """Run what is not in the work folder yet, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks drift_monitors")
    parser.add_argument("--quick", action="store_true", help="few streams, no peers: seconds")
    parser.add_argument("--no-peers", action="store_true", help="our monitors alone")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the streams (default {SEED}, used in development)")
    parser.add_argument(
        "--work",
        type=Path,
        help=f"folder that keeps what peers found, which is not run again (default {WORK}/SEED)",
    )
    parser.add_argument("--kept", action="store_true", help="peers only as far as the work folder has them")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    parser.add_argument(
        "--add", action="store_true", help="as --kept, and keep these peers' results beside what is saved of the others"
    )
    options = parser.parse_args(arguments)
    if not (DATA / "gas_drift").is_dir():
        raise SystemExit("drift_monitors: not run: data absent")
    os.nice(19)
    kept = options.kept or options.add
    rivals = not (options.quick or options.no_peers)
    work = options.work or WORK / str(options.seed)
    if rivals:
        work.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[Sequence[Cell], frozenset[str]]] = {}
    for part in OWN:
        if part in options.parts:
            against = RIVALS[part] if rivals else ()
            extent = QUICK if options.quick else EXTENTS[part]
            streams = (
                draw(load(task, DATA), extent, options.seed, wide=part == "unlabelled") for task in options.tasks
            )
            progress = Progress.of(against, options.tasks, work)
            if against:
                print(f"{part}\n{progress.told(run=not kept)}", flush=True)
            every = run(part, streams, against, progress, kept=kept)
            if not options.add:
                print(f"\n{part}\n{table(every, OWN[part])}", flush=True)
            found[part] = every, OWN[part]
    if options.add:
        print(f"added: {add(found, RESULTS).name}")
        return
    costs = cost.run() if "cost" in options.parts and rivals else []
    print(cost.table(costs))
    shares = share.run() if "share" in options.parts and rivals else []
    print(share.table(shares) if shares else "")
    if options.save and (found or costs):
        print(f"saved: {save(found, costs, RESULTS).name}")
    if options.save and shares:
        print(f"saved: {share.save(shares, RESULTS).name}")


def run(
    part: str, every: Iterable[Drawn], against: Sequence[peers.Peer], progress: Progress, *, kept: bool = False
) -> list[Cell]:
    """All cells of a part, beside these peers; ``kept``: beside those of them that the work folder has.

    Raises:
        RuntimeError: a peer fails.
        ValueError: the folder is about other streams.
    """
    found: list[Cell] = []
    for drawn in every:
        if against:
            claim(progress.work, drawn, part)
        if part == "labelled":
            swept = {name: ours.sweep(monitor, drawn) for name, monitor in ours.MONITORS.items()}
        else:
            swept = {label_free.NAME: label_free.sweep(drawn)}
        for peer in against:
            if not kept or peers.result(peer, drawn.task.name, progress.work).exists():
                swept[peer.name] = _peer(peer, drawn, progress)
        found += cells(drawn, swept, next(iter(swept)))
    return found


def _peer(peer: peers.Peer, drawn: Drawn, progress: Progress) -> Swept:
    new = not peers.result(peer, drawn.task.name, progress.work).exists()
    progress.start()
    swept = peers.sweep(peer, drawn, progress.work, BUDGET_S)
    if new:
        print(progress.end(swept), flush=True)
    return swept
