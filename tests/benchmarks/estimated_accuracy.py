"""``python -m tests.benchmarks estimated_accuracy [--quick] [--save]``: accuracies without labels beside the true ones.

Windows of 500 samples. *Constructed*: a stretch of one stream, shuffled and cut into rows that train, rows that
calibrate and a pool, of which windows are drawn with importances. *Streams*: windows as they came after the stretch.
*Tampered*: windows of the pool with sensors swapped, scaled, stuck. Ours beside NannyML's CBPE, in its own environment,
and a plain mean of confidences. *Neighbours* (``--neighbours``): made streams whose rows resemble each other, in order.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.accuracy_data import neighbours
from tests.benchmarks.accuracy_data.arms import WINDOW, Estimator, Shown, nannyml
from tests.benchmarks.accuracy_data.shifts import KINDS, STRENGTHS, importances, tampered
from tests.benchmarks.accuracy_data.tables import TAMPERED, Case, keep, kept_peers, summary
from tests.benchmarks.accuracy_data.tasks import ELEC, GAS, INSECTS, TURBINE, Net, stream
from tests.benchmarks.report import keep as keep_json

FIRST_SEED, SEEDS, MORE_SEEDS, DRAWS = 100, 3, 8, 3
"""Seeds below 100 were used while the rules were made. All windows of a seed share one reference and its luck: what
missed a goal on three was run on eight."""
STATIONARY_WINDOWS = 20
NEIGHBOURS = "estimated_accuracy_neighbours"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a stream that train and calibrate a net, and how it goes on.

    Attributes:
        began, ended: rows of the stream.
        training, calibration: how many rows of the shuffled stretch; the rest is the pool.
        new: it took no part in making the rules of refusal.
        seeds: references.
    """

    source: str
    began: int
    ended: int
    training: int
    calibration: int
    new: bool = False
    seeds: int = SEEDS

    @property
    def name(self) -> str:
        """As the tables have it."""
        return f"{self.source} {self.began}-{self.ended}, {self.calibration} rows" + (" (new)" if self.new else "")


CONSTRUCTED = (
    Stretch(INSECTS, 3000, 10500, 2500, 500),
    Stretch(INSECTS, 3000, 10500, 2500, 1500),
    Stretch(INSECTS, 13500, 22500, 2500, 500),
    Stretch(INSECTS, 13500, 22500, 2500, 1500),
    Stretch(GAS, 3633, 5933, 800, 600),
    Stretch(GAS, 1689, 3275, 500, 500),
    Stretch(GAS, 445, 1689, 350, 500, new=True, seeds=MORE_SEEDS),
    Stretch(ELEC, 24000, 32000, 2500, 1000, new=True),
    Stretch(TURBINE, 0, 7411, 3500, 1500, new=True, seeds=MORE_SEEDS),
)
"""Gas batches 6, 3 and 2."""
STREAMS = (
    Stretch(INSECTS, 0, 4500, 2000, 1500),
    Stretch(INSECTS, 3000, 7500, 2000, 1500),
    Stretch(INSECTS, 3000, 10500, 3400, 2600),
    Stretch(INSECTS, 6000, 12000, 2700, 2100),
    Stretch(INSECTS, 13500, 18000, 2000, 1500),
    Stretch(INSECTS, 1500, 9000, 3400, 2600, new=True),
    Stretch(INSECTS, 4500, 9000, 2000, 1500, new=True),
    Stretch(INSECTS, 15000, 19500, 2000, 1500, new=True, seeds=MORE_SEEDS),
    Stretch(GAS, 0, 1689, 760, 590),
    Stretch(GAS, 0, 3275, 1470, 1150),
    Stretch(GAS, 1689, 3275, 710, 550),
    Stretch(GAS, 445, 3275, 1270, 990, new=True),
    Stretch(TURBINE, 0, 7411, 3300, 2500, new=True),
)
QUICK = (CONSTRUCTED[5], STREAMS[10])


def main(arguments: Sequence[str]) -> None:
    """Run all, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks estimated_accuracy")
    parser.add_argument("--quick", action="store_true", help="one stretch of each kind, one seed: seconds")
    parser.add_argument("--seeds", type=int, help=f"references a stretch (default {SEEDS}, of some {MORE_SEEDS})")
    parser.add_argument("--no-peer", action="store_true", help="without NannyML")
    parser.add_argument(
        "--kept-peer", action="store_true", help="NannyML's figures as they were saved: its windows are the same"
    )
    parser.add_argument("--neighbours", action="store_true", help="made streams whose rows resemble each other alone")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    if options.neighbours:
        _neighbours(options.quick, options.save)
        return
    constructed, streams = (QUICK[:1], QUICK[1:]) if options.quick else (CONSTRUCTED, STREAMS)
    with tempfile.TemporaryDirectory() as work:
        peer = None if options.no_peer or options.kept_peer else Path(work)
        kept = kept_peers() if options.kept_peer else {}
        cases: list[Case] = []
        for stretch, part in [(one, "constructed") for one in constructed] + [(one, "stream") for one in streams]:
            count = 1 if options.quick else options.seeds or stretch.seeds
            cases.append(run(stretch, part, range(FIRST_SEED, FIRST_SEED + count), peer))
            print(summary(cases[-1:]), flush=True)
            if options.save:
                print(f"saved: {keep(cases, kept=kept).name}")


def _neighbours(quick: bool, save: bool) -> None:
    found = []
    for one in neighbours.every(1, 4) if quick else neighbours.every():
        print(one, flush=True)
        found.append(asdict(one))
    if save:
        print(f"saved: {keep_json(NEIGHBOURS, 'Figures where neighbours resemble each other', {'cells': found}).name}")


def run(stretch: Stretch, part: str, seeds: Sequence[int], peer: Path | None) -> Case:
    """All windows of a stretch: one net and one calibration a seed."""
    case = Case(part, stretch.name, [], [], stream(stretch.source).classes == 0, [])
    for seed in seeds:
        estimator, shown = windows(stretch, part, seed)
        case.windows.extend(shown)
        case.seeds.extend([seed] * len(shown))
        print(f"{part}: {stretch.name}, seed {seed}: {len(shown)} windows", flush=True)
        if peer is not None and stream(stretch.source).classes:
            asked = seed < FIRST_SEED + SEEDS
            found = nannyml(estimator.reference, shown, peer) if asked else np.full((len(shown), 3), np.nan)
            case.peer.extend(found.tolist())
    return case


def windows(stretch: Stretch, part: str, seed: int) -> tuple[Estimator, list[Shown]]:
    """The windows of one seed."""
    rng, rows = np.random.default_rng(seed), stream(stretch.source)
    order = stretch.began + rng.permutation(stretch.ended - stretch.began)
    fit = order[: stretch.training]
    held = order[stretch.training : stretch.training + stretch.calibration]
    pool = order[stretch.training + stretch.calibration :]
    net = Net(rows.features[fit], rows.labels[fit], rows.classes, seed)
    outputs = net.outputs(rows.features)
    labels = rows.labels.astype(np.float64)
    estimator = Estimator(rows.features[held], outputs[held], labels[held], rows.classes, seed)

    def show(case: str, chosen: np.ndarray, *, go_on: bool = False) -> Shown:
        return estimator.show(case, rows.features[chosen], outputs[chosen], labels[chosen], go_on=go_on)

    shown = []
    if part == "constructed":
        for strength in STRENGTHS:
            for kind in KINDS:
                for _ in range(DRAWS):
                    chances = importances(rows.features[pool], kind, strength, rng)
                    shown.append(show(f"strength {strength:g}", rng.choice(pool, WINDOW, p=chances)))
        chosen, spread = rng.choice(pool, WINDOW), rows.features[pool].std(axis=0) + 1e-9
        for name, readings in tampered(rows.features[chosen], spread, rng):
            case = TAMPERED + name
            shown.append(estimator.show(case, readings, net.outputs(readings), labels[chosen], go_on=False))
    else:
        shown = [show("as before", rng.choice(pool, WINDOW)) for _ in range(STATIONARY_WINDOWS)]
        starts = range(stretch.ended, len(labels) - WINDOW + 1, WINDOW)
        shown += [show("stream", np.arange(start, start + WINDOW), go_on=True) for start in starts]
    return estimator, shown
