"""``python -m tests.benchmarks attribution [--runs N] [--save]``: whether the monitor names the sensors that drift.

Half of the rows of a recorded stretch, drawn at random, calibrate the monitor; batches of 32 of the other half are the
stream, and from its 10th batch on one or two sensors are made to drift. At the first alarm (a ramp begins with nothing:
when it has come to its end) the most important names of the finding, as many as sensors drift, must be those sensors.
What the model says goes in too: a ridge regression's.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled import LabelFreeParams, LabelFreeState, step
from edge_agent.drift.unlabelled.calibrate import calibrated
from tests.benchmarks.attribution_data.injections import INJECTIONS, RAMP_BATCHES
from tests.benchmarks.attribution_data.recordings import RECORDINGS, Recording
from tests.benchmarks.report import keep
from tests.shared_data import DATA

TITLE = "Injected sensor drifts named by the label-free monitor"
BATCH, QUIET, MOST = 32, 10, 200
RATE = 0.01


@dataclass(frozen=True)
class Case:
    """A monitor and the rows that its streams are drawn from."""

    recording: Recording
    params: LabelFreeParams
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]
    deviations: NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """How one drift was answered.

    Attributes:
        named: the right sensors, and no others, come first; False without an alarm.
        batches: from the drift to the alarm; None: there was none.
        early: the alarm came before the drift.
    """

    named: bool
    batches: int | None
    early: bool = False


def case_of(recording: Recording, seed: int) -> Case:
    """A calibrated monitor; the rate is 0.01, or the lowest that the reference supports."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(recording.features))
    half = order[: len(order) // 2]
    weights = _ridge(recording, half)
    reference = Reference(
        observed=_observed(recording.features[half], weights),
        losses=np.zeros(len(half)),
        labels=recording.labels[half],
        classes=recording.classes,
        segments=np.zeros(len(half), np.int64),
        names=recording.names,
        units=recording.units,
    )
    rate = max(RATE, 0.6 * BATCH / len(half))
    params, _ = calibrated(reference, batch_size=BATCH, rate=rate, rng=rng)
    deviations = recording.features[half].std(axis=0, dtype=np.float64)
    return Case(recording, params, order[len(half) :], weights, deviations)


def run_one(case: Case, injection: str, sensors: NDArray[np.int64], rng: np.random.Generator) -> Outcome:
    """One stream with one drift."""
    rows = rng.choice(case.rows, MOST * BATCH)
    features = case.recording.features[rows].astype(np.float64)
    since = np.repeat(np.arange(MOST, dtype=np.float64) - QUIET, BATCH)
    for sensor in sensors:
        drifted = INJECTIONS[injection](features[:, sensor], since, case.deviations[sensor], rng)
        features[:, sensor] = np.where(since >= 0, drifted, features[:, sensor])
    state, first = LabelFreeState.start(case.params), None
    due = QUIET + (RAMP_BATCHES if injection == "ramp" else 0)
    for batch in range(MOST):
        some = features[batch * BATCH : (batch + 1) * BATCH].astype(np.float32)
        state, finding = step(case.params, state, _observed(some, case.weights))
        if finding.alarm and batch < QUIET:
            return Outcome(False, None, early=True)
        if finding.alarm and first is None:
            first = batch - QUIET + 1
        if finding.alarm and batch >= due:
            return Outcome(_right(finding, case.recording, sensors), first)
    return Outcome(False, None)


def table(runs: int, seed: int = 0) -> list[dict[str, object]]:
    """A row for each recording, injection and number of sensors."""
    found: list[dict[str, object]] = []
    for name, read in RECORDINGS.items():
        case = case_of(read(DATA), seed)
        for injection in INJECTIONS:
            for count in (1, 2):
                found.append(_row(case, name, injection, count, runs, seed))
                row = found[-1]
                print(f"  {name:8s} {injection:6s} {count} {row['named']:.3f} of {row['runs']}, delay {row['delay']}")
    return found


def main(arguments: list[str]) -> None:
    """Print the table; with ``--save`` keep it under docs/benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks attribution")
    parser.add_argument("--runs", type=int, default=200, help="streams a cell (default 200)")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    chosen = parser.parse_args(arguments)
    rows = table(chosen.runs)
    shares = [float(str(row["named"])) for row in rows]
    print(f"  all: {np.mean(shares):.3f}, the least {min(shares):.3f}")
    if chosen.save:
        print(f"  saved: {keep('attribution', TITLE, {'rows': rows}).name}")


def _row(case: Case, name: str, injection: str, count: int, runs: int, seed: int) -> dict[str, object]:
    outcomes = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, count])
        sensors = rng.choice(len(case.recording.names), count, replace=False)
        outcomes.append(run_one(case, injection, sensors, rng))
    judged = [outcome for outcome in outcomes if not outcome.early]
    delays = [outcome.batches for outcome in judged if outcome.batches is not None]
    return {
        "data": name,
        "injection": injection,
        "sensors": count,
        "runs": len(judged),
        "named": float(np.mean([outcome.named for outcome in judged])),
        "delay": float(np.median(delays)) if delays else None,
        "missed": len(judged) - len(delays),
        "alarmed before": len(outcomes) - len(judged),
    }


def _right(finding: Finding, recording: Recording, sensors: NDArray[np.int64]) -> bool:
    named = [one.name for one in finding.attributions if one.name in recording.names]
    return set(named[: len(sensors)]) == {recording.names[sensor] for sensor in sensors}


def _ridge(recording: Recording, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """(f + 1, outputs) of a linear model of the classes, scaled to logits, or of the target."""
    features = recording.features[rows].astype(np.float64)
    classes, labels = recording.classes, recording.labels[rows]
    wanted = labels[:, None] if classes is None else 10.0 * (labels[:, None] == np.arange(classes))
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-9
    scaled = np.concatenate([(features - mean) / deviation, np.ones((len(rows), 1))], axis=1)
    fit = np.linalg.solve(scaled.T @ scaled + np.eye(scaled.shape[1]), scaled.T @ wanted)
    fit[:-1] /= deviation[:, None]
    fit[-1] -= mean @ fit[:-1]
    return np.asarray(fit)


def _observed(features: NDArray[np.float32], weights: NDArray[np.float64]) -> Observed:
    outputs = features @ weights[:-1] + weights[-1]
    return Observed([""] * len(features), np.zeros(len(features)), features, outputs.astype(np.float32))
