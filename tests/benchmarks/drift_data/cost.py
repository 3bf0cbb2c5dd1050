"""What a sample costs: our default monitors beside river's ADWIN on each feature and PageHinkley on the loss.

As the agent brings a fast stream: screened, and noted for its labels, in groups of ``GATHERED_SAMPLES``, judged in
groups of ``MOST_ROWS``; and as it brings a slow one, batch by batch.
"""

import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import arrivals, faults
from edge_agent.drift.accuracy import monitor as accuracy
from edge_agent.drift.accuracy.calibrate import calibrate_accuracy, step_rows
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Labelled, Observed
from edge_agent.drift.reference import Reference
from edge_agent.drift.sequential import loss_level
from edge_agent.drift.sequential.table import Distribution
from edge_agent.drift.unlabelled import monitor as label_free
from edge_agent.drift.unlabelled.fitting import fitted
from edge_agent.runtime.gathering import GATHERED_SAMPLES
from edge_agent.runtime.watch_batches import ServedBatches, joined
from edge_agent.runtime.watch_held import MOST_ROWS
from tests.benchmarks.drift_data import peers
from tests.benchmarks.drift_data.streams import BATCH
from tests.drift.faults.sensors import manifest_of

FEATURES, CLASSES, EMBEDDING, REFERENCE, BATCHES, ROUNDS = 16, 6, 32, 2000, 96, 9
GROUP = MOST_ROWS // BATCH
"""Batches of a fast stream that are judged together."""
REPLY_S = 600
Portion = tuple[Observed, Labelled]


def run(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """CPU microseconds a sample of each monitor, of all together and of river, in turn; and the states' sizes.

    Raises:
        RuntimeError: river's environment cannot be made.
    """
    reference, batches = _data()
    portions = {"us_a_sample": _grouped(batches, GROUP), "us_by_batch": batches}
    monitors = Monitors(reference)
    command = [peers.python_of("river"), peers.SIDES / "river_cost.py"]
    taken: list[dict[str, dict[str, float]]] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as river:
        for _ in range(rounds + 1):
            theirs = _ask(river)
            taken.append({way: {"river": theirs} | monitors.spend(some) for way, some in portions.items()})
        river.communicate("", timeout=REPLY_S)
    return [*_rows(taken[1:], monitors), *_together(taken[1:], monitors)]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people."""
    if not rows:
        return ""
    lines = [f"| monitor | us of CPU a sample, {GROUP} batches at once | one by one | state |", "|---|---|---|---|"]
    for row in rows:
        size = "" if row["state_bytes"] is None else f"{row['state_bytes'] / 1000:.1f} kB"
        lines.append(f"| {row['monitor']} | {row['us_a_sample']:.2f} | {row['us_by_batch']:.2f} | {size} |")
    last = rows[-1]
    return "\n".join([*lines, f"ours over river's: {last['ratio']:.2f}, batch by batch {last['ratio_by_batch']:.2f}"])


def _rows(taken: Sequence[dict[str, dict[str, float]]], monitors: "Monitors") -> list[dict[str, Any]]:
    sizes = monitors.sizes()
    return [
        {"monitor": name, **{way: _median(one[way][name] for one in taken) for way in taken[0]}}
        | {"state_bytes": sizes.get(name)}
        for name in (*monitors.names, "river")
    ]


def _together(taken: Sequence[dict[str, dict[str, float]]], monitors: "Monitors") -> list[dict[str, Any]]:
    ours = {way: [sum(one[way][name] for name in monitors.names) for one in taken] for way in taken[0]}
    ratios = {
        way: _median(mine / one[way]["river"] for mine, one in zip(ours[way], taken, strict=True)) for way in ours
    }
    return [
        {
            "monitor": "ours together",
            **{way: _median(values) for way, values in ours.items()},
            "state_bytes": sum(monitors.sizes().values()),
            "ratio": ratios["us_a_sample"],
            "ratio_by_batch": ratios["us_by_batch"],
            "batches_at_once": GROUP,
        }
    ]


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


class Monitors:
    """The default set on one bundle, each with its state."""

    def __init__(self, reference: Reference) -> None:
        rng = np.random.default_rng(0)
        level = loss_level.LossLevelParams(12.0, 9.0, BATCH, 1.0, Distribution.of(reference.losses))
        free = fitted(reference, batch_size=BATCH, rate=1e-3, rng=rng).params
        estimate = calibrate_accuracy(reference, batch_size=step_rows(BATCH, FEATURES + CLASSES + EMBEDDING), rng=rng)
        screen = faults.calibrate(reference, manifest_of((FEATURES,)))
        labels = arrivals.calibrate_arrivals(reference)
        self.params: dict[str, Any] = {
            "loss-level": (loss_level, level, loss_level.LossLevelState.start(level)),
            "label-free": (label_free, free, label_free.LabelFreeState.start(free)),
            "accuracy": (accuracy, estimate, accuracy.AccuracyState.start(estimate)),
            "faults": (faults, screen, faults.FaultState.start(screen)),
            "arrivals": (arrivals, labels, arrivals.ArrivalsState.start(labels)),
        }
        self.names = tuple(self.params)
        self.waiting = {"label-free": ServedBatches(BATCH), "accuracy": ServedBatches(estimate.batch_size)}
        self.now_s = 0.0

    def spend(self, portions: Sequence[Portion]) -> dict[str, float]:
        """CPU microseconds a sample of each over samples as they are brought."""
        rows = sum(len(served) for served, _ in portions)
        return {name: self._spend(name, portions) / rows * 1e6 for name in self.names}

    def sizes(self) -> dict[str, int]:
        """Bytes of each state."""
        return {
            name: sum(int(np.asarray(array).nbytes) for array in state.to_arrays().values())
            for name, (_, _, state) in self.params.items()
        }

    def _spend(self, name: str, portions: Sequence[Portion]) -> float:
        module, params, state = self.params[name]
        began_s = time.process_time()
        for served, labelled in portions:
            pieces = [served.part(at, at + GATHERED_SAMPLES) for at in range(0, len(served), GATHERED_SAMPLES)]
            if name == "arrivals":
                self.now_s += len(served)
                for piece in pieces:
                    now_s = np.full(len(piece), self.now_s)
                    state = arrivals.note_outputs(params, state, piece.ids, now_s, piece.outputs)
                state = arrivals.note_labelled_at(params, state, labelled.ids, self.now_s + 60)
            elif name == "loss-level":
                state, _ = module.step_many(params, state, labelled)
            elif name == "faults":
                for piece in pieces:
                    state, _ = module.step(params, state, piece)
            else:
                waiting = self.waiting[name]
                for piece in pieces:
                    waiting.add(replace(piece, finite=True))  # as the agent's screen leaves them
                while (whole := waiting.take()) is not None:
                    state, _ = module.step_many(params, state, whole)
                waiting.settled()
        spent_s = time.process_time() - began_s
        self.params[name] = module, params, state
        return spent_s


def _ask(river: "subprocess.Popen[str]") -> float:
    if river.stdin is None or river.stdout is None:
        raise RuntimeError("river's process has no pipes")
    river.stdin.write(f"{BATCHES * BATCH}\n")
    river.stdin.flush()
    return float(river.stdout.readline()) / (BATCHES * BATCH) * 1e6


def _grouped(batches: Sequence[Portion], size: int) -> list[Portion]:
    return [_side_by_side(batches[start : start + size]) for start in range(0, len(batches), size)]


def _side_by_side(portions: Sequence[Portion]) -> Portion:
    labelled = [one for _, one in portions]
    return joined([one for one, _ in portions]), Labelled(
        [name for one in labelled for name in one.ids],
        np.concatenate([one.times_s for one in labelled]),
        np.concatenate([one.losses for one in labelled]),
        np.concatenate([one.delays_s for one in labelled]),
    )


def _data() -> tuple[Reference, list[Portion]]:
    """Sixteen features of a common cause, six classes by a net of one layer; nothing drifts."""
    rng = np.random.default_rng(0)
    into, out = rng.normal(size=(FEATURES, EMBEDDING)) / 4, rng.normal(size=(EMBEDDING, CLASSES))

    def drawn(rows: int, first: int) -> tuple[Observed, NDArray[np.int64], NDArray[np.float64]]:
        features = (rng.normal(size=(rows, FEATURES)) + rng.normal(size=(rows, 1))).astype(np.float32)
        embeddings = np.maximum(features @ into, 0)
        outputs = embeddings @ out
        labels = (outputs + rng.gumbel(size=outputs.shape)).argmax(1)
        ids = [f"sample-{number}" for number in range(first, first + rows)]
        times = np.arange(first, first + rows, dtype=np.float64)
        return (
            Observed(ids, times, features, outputs.astype(np.float32), embeddings.astype(np.float32)),
            labels,
            sample_losses("cross-entropy", outputs, labels),
        )

    observed, labels, losses = drawn(REFERENCE, 0)
    names = tuple(f"sensor {number}" for number in range(FEATURES))
    segments = np.zeros(REFERENCE, np.int64)
    reference = Reference(observed, losses, labels, CLASSES, segments, names, ("",) * FEATURES)
    batches = []
    for number in range(BATCHES):
        served, _, lost = drawn(BATCH, REFERENCE + number * BATCH)
        batches.append((served, Labelled(served.ids, served.times_s, lost, np.full(BATCH, 60.0))))
    return reference, batches
