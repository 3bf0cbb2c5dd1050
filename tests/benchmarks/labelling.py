"""``python -m tests.benchmarks labelling [--quick] [--save]``: labelling that leans is found, fair labelling is not.

A net serves insects as they came; some of its samples are labelled, by several rules, after a while. What is counted:
how often labelling is called biased (fair: at most the level), after how many labels, and how far the accuracy of the
labelled samples, plain and weighed, is from that of all.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.arrivals import (
    ArrivalsParams,
    ArrivalsState,
    calibrate_arrivals,
    note_labelled,
    note_served,
    output_cells,
)
from edge_agent.drift.label_shift import softmax
from edge_agent.drift.labelling import LabelEvidence, label_evidence
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from tests.benchmarks.accuracy_data.tasks import INSECTS, Net, stream
from tests.benchmarks.report import RESULTS, machine

Floats = NDArray[np.float64]

NAME = "labelling"
BEGAN, ENDED, TRAINING = 3000, 10500, 2500
SERVED, EVERY_S, MATURE_S, DELAY_S, LOOKS = 2000, 1.0, 600.0, 100.0, 10
STREAMS, FAIR_STREAMS = 50, 1000
SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Served:
    """What a labelling rule may look at: (n,) confidence, predicted class, whether the prediction is right."""

    confidence: Floats
    predicted: NDArray[np.int64]
    right: NDArray[np.bool_]


Rule = Callable[[Served, np.random.Generator], Floats]
"""Chances of being labelled."""
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "fair": lambda served, rng: np.full(len(served.right), SHARE),
        "fair, share changes by the hour": lambda served, rng: np.repeat(
            rng.uniform(0.02, 0.6, len(served.right) // 100), 100
        ),
        "doubtful half twice as often": lambda served, rng: np.where(
            served.confidence < float(np.median(served.confidence)), 4 / 3 * SHARE, 2 / 3 * SHARE
        ),
        "only the doubtful tenth": lambda served, rng: np.where(
            served.confidence < float(np.quantile(served.confidence, 0.1)), 1.0, 0.0
        ),
        "only one predicted class": lambda served, rng: np.where(served.predicted == 1, 1.0, 0.0),
        "one predicted class never": lambda served, rng: np.where(served.predicted == 1, 0.0, SHARE),
        "failures only": lambda served, rng: np.where(served.right, 0.0, 1.0),
        "failures three times as often": lambda served, rng: np.where(served.right, 0.15, 0.45),
    }
)


@dataclass(frozen=True, slots=True)
class Counted:
    """Of all streams of a rule; the gaps are mean absolute differences to the accuracy of all, in points.

    Attributes:
        biased: share of streams called biased at the end; ``ever``: at any of the ten looks.
        labels_until: median number of labels at the first look that did.
    """

    rule: str
    streams: int
    biased: float
    ever: float
    weighted: float
    labels_until: float | None
    plain_gap: float
    weighed_gap: float | None


def main(arguments: Sequence[str]) -> None:
    """Run all rules, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks labelling")
    parser.add_argument("--quick", action="store_true", help="a tenth of the streams: seconds")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    params, served, cells = _setting()
    counted = []
    for rule in RULES:
        streams = FAIR_STREAMS if rule.startswith("fair") else STREAMS
        counted.append(count(rule, streams // 10 if options.quick else streams, params, served, cells))
        print(f"  {counted[-1]}")
    if options.save:
        content = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}
        rows = {"level": params.level, "rows": [asdict(row) for row in counted]}
        path = RESULTS / f"{NAME}.json"
        path.write_text(json.dumps(content | rows, indent=1) + "\n", encoding="utf-8")


def count(rule: str, streams: int, params: ArrivalsParams, served: Served, cells: NDArray[np.int16]) -> Counted:
    """Streams of one rule, each from a seed of its own."""
    biased, weighted, until, plain, weighed = 0, 0, [], [], []
    for seed in range(streams):
        rng = np.random.default_rng([seed, list(RULES).index(rule)])
        rows = rng.choice(len(cells), SERVED)
        mine = Served(served.confidence[rows], served.predicted[rows], served.right[rows])
        labelled = np.flatnonzero(rng.random(SERVED) < RULES[rule](mine, rng))
        delays = np.minimum(rng.exponential(DELAY_S, len(labelled)), MATURE_S)
        found, at = _told(params, cells[rows], labelled, delays)
        biased += found.biased
        until += [at] if at is not None else []
        truth, weights = mine.right.mean(), found.weights_of(cells[rows][labelled])
        plain.append(abs(mine.right[labelled].mean() - truth))
        if found.use == "weighted":
            weighted += 1
            weighed.append(abs(weights @ mine.right[labelled] / weights.sum() - truth))
    return Counted(
        rule,
        streams,
        biased / streams,
        len(until) / streams,
        weighted / streams,
        float(np.median(until)) if until else None,
        100 * float(np.mean(plain)),
        100 * float(np.mean(weighed)) if weighed else None,
    )


def _told(
    params: ArrivalsParams, cells: NDArray[np.int16], labelled: NDArray[np.int64], delays: Floats
) -> tuple[LabelEvidence, int | None]:
    """The evidence at the end, and how many labels had come at the first of ten looks that called it biased."""
    ids, times = [f"s{row}" for row in range(SERVED)], EVERY_S * np.arange(SERVED)
    state = note_served(params, ArrivalsState.start(params), ids, times, cells)
    state = note_labelled(params, state, [ids[row] for row in labelled], delays)
    arrivals = times[labelled] + delays
    end_s = SERVED * EVERY_S + MATURE_S
    for now_s in np.linspace(MATURE_S, end_s, LOOKS):
        found = label_evidence(params, state, float(now_s))
        if found.biased:
            return label_evidence(params, state, end_s), int((arrivals <= now_s).sum())
    return found, None


def _setting() -> tuple[ArrivalsParams, Served, NDArray[np.int16]]:
    """A net on insects, and what it makes of those that it has not seen."""
    rows, rng = stream(INSECTS), np.random.default_rng(0)
    order = BEGAN + rng.permutation(ENDED - BEGAN)
    fit, held = order[:TRAINING], order[TRAINING:]
    net = Net(rows.features[fit], rows.labels[fit], rows.classes, 0)
    outputs, labels = net.outputs(rows.features[held]), rows.labels[held]
    seen = Observed([str(row) for row in held], held.astype(np.float64), rows.features[held], outputs)
    losses, zeros = sample_losses("cross-entropy", outputs, labels), np.zeros(len(held), np.int64)
    width = rows.features.shape[1]
    reference = Reference(seen, losses, labels, rows.classes, zeros, tuple(map(str, range(width))), ("",) * width)
    params = calibrate_arrivals(reference, mature_s=MATURE_S)
    predicted = outputs.argmax(axis=1)
    served = Served(softmax(outputs).max(axis=1), predicted, predicted == labels)
    return params, served, output_cells(params, outputs)
