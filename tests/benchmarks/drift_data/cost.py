"""What a sample costs: our default monitors beside river's ADWIN on each feature and PageHinkley on the loss."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
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
from edge_agent.runtime.watch_batches import ServedBatches
from tests.benchmarks.drift_data import peers
from tests.benchmarks.drift_data.streams import BATCH
from tests.drift.faults.sensors import manifest_of

FEATURES, CLASSES, EMBEDDING, REFERENCE, BATCHES, ROUNDS = 16, 6, 32, 2000, 100, 9
REPLY_S = 600
Steps = Mapping[str, Callable[[Observed, Labelled], object]]


def run(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """CPU microseconds a sample of each monitor, of all together and of river, in turn; and the states' sizes.

    Raises:
        RuntimeError: river's environment cannot be made.
    """
    reference, batches = _data()
    monitors = Monitors(reference)
    command = [peers.python_of("river"), peers.SIDES / "river_cost.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as river:
        spent: dict[str, list[float]] = {name: [] for name in (*monitors.names, "river")}
        for number in range(rounds + 1):
            told = {"river": _ask(river)} | monitors.spend(batches)
            if number:
                for name, seconds in told.items():
                    spent[name].append(seconds / (BATCHES * BATCH) * 1e6)
        river.communicate("", timeout=REPLY_S)
    ours = [sum(spent[name][number] for name in monitors.names) for number in range(rounds)]
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, spent["river"], strict=True))
    sizes = monitors.sizes()
    rows = [
        {"monitor": name, "us_a_sample": round(statistics.median(values), 3), "state_bytes": sizes.get(name)}
        for name, values in spent.items()
    ]
    together = round(statistics.median(ours), 3)
    size = sum(sizes.values())
    return [*rows, {"monitor": "ours together", "us_a_sample": together, "state_bytes": size, "ratio": round(ratio, 3)}]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people."""
    if not rows:
        return ""
    lines = ["| monitor | us of CPU a sample | state |", "|---|---|---|"]
    for row in rows:
        size = "" if row["state_bytes"] is None else f"{row['state_bytes'] / 1000:.1f} kB"
        lines.append(f"| {row['monitor']} | {row['us_a_sample']:.2f} | {size} |")
    return "\n".join([*lines, f"ours over river's: {rows[-1]['ratio']:.2f}"])


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
        self.waiting = ServedBatches(estimate.batch_size)
        self.now_s = 0.0

    def spend(self, batches: Sequence[tuple[Observed, Labelled]]) -> dict[str, float]:
        """CPU seconds of each over the batches."""
        return {name: self._spend(name, batches) for name in self.names}

    def sizes(self) -> dict[str, int]:
        """Bytes of each state."""
        return {
            name: sum(int(np.asarray(array).nbytes) for array in state.to_arrays().values())
            for name, (_, _, state) in self.params.items()
        }

    def _spend(self, name: str, batches: Sequence[tuple[Observed, Labelled]]) -> float:
        module, params, state = self.params[name]
        began_s = time.process_time()
        for served, labelled in batches:
            if name == "arrivals":
                self.now_s += BATCH
                state = arrivals.note_outputs(params, state, served.ids, served.times_s + self.now_s, served.outputs)
                state = arrivals.note_labelled_at(params, state, labelled.ids, self.now_s + 60)
            elif name == "accuracy":
                self.waiting.add(served)
                while (batch := self.waiting.take()) is not None:
                    state, _ = module.step(params, state, batch)
                self.waiting.settled()
            else:
                state, _ = module.step(params, state, labelled if name == "loss-level" else served)
        spent_s = time.process_time() - began_s
        self.params[name] = module, params, state
        return spent_s


def _ask(river: "subprocess.Popen[str]") -> float:
    if river.stdin is None or river.stdout is None:
        raise RuntimeError("river's process has no pipes")
    river.stdin.write(f"{BATCHES * BATCH}\n")
    river.stdin.flush()
    return float(river.stdout.readline())


def _data() -> tuple[Reference, list[tuple[Observed, Labelled]]]:
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
            Observed(ids, times, features, outputs, embeddings),
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
