"""``python -m tests.benchmarks tailor [--quick] [--seeds N] [--save]``: a task block beside a head and the whole net.

A net learns the digits 0 to 4. Then it is brought to other tasks, each with 600 images: by a head of its own, by
NetTailor's proxies from the layer before (k = 1) or from three (k = 3), by these proxies pruned, by training the whole
net. Accuracy on 1,200 other images, and the bytes of a round's update as it is sent.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.model.bundle import WEIGHTS, Bundle, file_digests, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.evaluation import evaluate
from edge_agent.wire.tasks import seen_by
from edge_agent.wire.tensors import Weights, encode_weights
from edge_agent.wire.updates import encode_update
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.tailor.build import TailorSettings, tailor_bundle
from server_bridge.bundles.tailor.prune import prune_bundle
from tests.benchmarks.report import RESULTS, keep
from tests.benchmarks.tailor_data.digits import KNOWN, TASKS, Split, splits
from tests.benchmarks.tailor_data.net import SOURCE, fresh, head, net
from tests.shared_data import DATA

BATCH, SEEDS, FIRST_SEED = 32, 5, 0
EPOCHS, BACKBONE_EPOCHS, QUICK_EPOCHS = 12, 6, 2
THRESHOLD = 0.05
UNJUDGED_ROWS = 64
"""The least that a monitor is calibrated on: none judges anything here."""
TASK = "task"
RATES = {"head alone": 0.03, "block, k = 1": 0.03, "block, k = 3": 0.03, "whole net": 0.003}
"""Adam's, the best of 0.001, 0.003, 0.01 and 0.03 for each on seeds that are not reported."""
PRUNED, LONGER = "block, k = 3, pruned", "block, k = 3, longer"


@dataclass(frozen=True, slots=True)
class Row:
    """One way on one task and seed.

    Attributes:
        accuracy: on images that nothing was trained on.
        values: that are trained, and sent.
        update_bytes: of the update, fp16 and zstd.
        step_ms: CPU time of a training step.
    """

    seed: int
    task: str
    way: str
    accuracy: float
    values: int
    update_bytes: int
    step_ms: float


class Site:
    """A backbone, and one task's images."""

    def __init__(self, folder: Path, seed: int, epochs: int, backbone_epochs: int) -> None:
        self.folder, self.seed, self.epochs = folder, seed, epochs
        known, self.tasks = splits(DATA, seed)
        start = fresh(KNOWN, np.random.default_rng([seed, 3]))
        bundle = self._whole(start, known, "backbone")
        self.backbone = train(bundle, "adam", bundle.initial_weights(), known, 0.003, backbone_epochs, seed)[0]

    def rows(self, task: str, *, rates: dict[str, float] | None = None) -> list[Row]:
        """Every way on one task."""
        rates = RATES if rates is None else rates
        made = [self._block(task, 0, "head alone", rates), *self._blocks(task, rates)]
        return [*made, self._fine_tuned(task, rates)]

    def _blocks(self, task: str, rates: dict[str, float]) -> list[Row]:
        return [
            self._block(task, 1, "block, k = 1", rates),
            self._block(task, 3, "block, k = 3", rates),
            *self._pruned(task, rates),
        ]

    def _block(self, task: str, previous: int, way: str, rates: dict[str, float]) -> Row:
        bundle = self._tailored(task, previous, f"{way}-{task}")
        weights, step_ms = self._train(bundle, task, rates[way])
        return self._row(bundle, bundle.initial_weights(), weights, task, way, step_ms)

    def _pruned(self, task: str, rates: dict[str, float]) -> list[Row]:
        """Trained for as long again at a third of the rate: as it is, and after pruning on its training images."""
        bundle = self._tailored(task, 3, f"before-{task}")
        weights, _ = self._train(bundle, task, rates["block, k = 3"])
        trained = bundle_with(bundle, weights, self.folder / f"trained-{task}")
        thin, _ = prune_bundle(
            trained.path, self._npz(self.tasks[task][0], task), self.folder / f"thin-{task}", threshold=THRESHOLD
        )
        rows = []
        for block, way in ((trained, LONGER), (thin, PRUNED)):
            base = block.initial_weights()
            after, step_ms = self._train(block, task, rates["block, k = 3"] / 3, base)
            rows.append(self._row(block, base, after, task, way, step_ms))
        return rows

    def _fine_tuned(self, task: str, rates: dict[str, float]) -> Row:
        rng = np.random.default_rng([self.seed, 4])
        base = self.backbone | head(len(TASKS[task].digits), rng)
        bundle = self._whole(base, self.tasks[task][0], f"whole-{task}")
        rate, way = rates["whole net"], "whole net"
        weights, step_ms = train(bundle, "adam", base, self.tasks[task][0], rate, self.epochs, self.seed)
        return self._row(bundle, base, weights, task, way, step_ms)

    def _train(self, bundle: Bundle, task: str, rate: float, base: Weights | None = None) -> tuple[Weights, float]:
        start = bundle.initial_weights() if base is None else base
        return train(bundle, f"{TASK}-adam", start, self.tasks[task][0], rate, self.epochs, self.seed)

    def _tailored(self, task: str, previous: int, name: str) -> Bundle:
        classes = len(TASKS[task].digits)
        settings = TailorSettings(
            {TASK: classes}, previous=previous, name="digits", optimisers=("adam",), seed=self.seed
        )
        few = self._npz(_few(self.tasks[task][0]), f"{task}-few")
        return tailor_bundle(net(self.backbone), few, settings, self.folder / name)

    def _whole(self, weights: Weights, split: Split, name: str) -> Bundle:
        settings = BuildSettings(["*"], "cross-entropy", optimisers=("adam",))
        return build_bundle(net(weights), self._npz(_few(split), name), settings, self.folder / name)

    def _npz(self, split: Split, name: str) -> Path:
        path = self.folder / f"{name}.npz"
        arrays: dict[str, Any] = {SOURCE: split.images, "label": split.labels}
        np.savez(path, allow_pickle=False, **arrays)
        return path

    def _row(self, bundle: Bundle, base: Weights, weights: Weights, task: str, way: str, step_ms: float) -> Row:
        test = self.tasks[task][1]
        manifest = seen_by(bundle.manifest, None)
        found = evaluate(InferenceModel(bundle, weights), manifest, {SOURCE: test.images}, test.labels)
        update = encode_update({name: weights[name] - base[name] for name in weights}, "fp16")
        values = sum(int(tensor.size) for tensor in weights.values())
        return Row(self.seed, task, way, found.accuracy or 0.0, values, len(update), step_ms)


def _few(split: Split) -> Split:
    return Split(split.images[:UNJUDGED_ROWS], split.labels[:UNJUDGED_ROWS])


def train(
    bundle: Bundle, graph: str, base: Weights, split: Split, rate: float, epochs: int, seed: int
) -> tuple[Weights, float]:
    """Weights after some passes, and the median CPU milliseconds of a step."""
    step, rng, times = TrainingStep(bundle, graph, base), np.random.default_rng([seed, 5]), []
    for _ in range(epochs):
        order = rng.permutation(len(split.labels))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            began = time.process_time()
            step.step({SOURCE: split.images[rows]}, split.labels[rows], learning_rate=rate)
            times.append(time.process_time() - began)
    return step.weights(), float(np.median(times)) * 1e3


def bundle_with(bundle: Bundle, weights: Weights, out: Path) -> Bundle:
    """A bundle with other weights."""
    files = {name: bundle.read(name) for name in bundle.manifest.files} | {WEIGHTS: encode_weights(weights)}
    return write_bundle(out, bundle.manifest.model_copy(update={"files": file_digests(files)}), files)


def run(seeds: Sequence[int], epochs: int, backbone_epochs: int) -> list[Row]:
    """Every way, task and seed."""
    rows = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            site = Site(Path(folder), seed, epochs, backbone_epochs)
            for task in TASKS:
                rows += site.rows(task)
    return rows


def summarise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Means over seeds: a line for each task and way."""
    lines = []
    for task in TASKS:
        for way in dict.fromkeys(row.way for row in rows):
            own = [row for row in rows if (row.task, row.way) == (task, way)]
            accuracies = np.array([row.accuracy for row in own])
            error = float(accuracies.std(ddof=1) / np.sqrt(len(own))) if len(own) > 1 else None
            lines.append(
                {
                    "task": task,
                    "way": way,
                    "accuracy": float(accuracies.mean()),
                    "standard_error": error,
                    "values": float(np.mean([row.values for row in own])),
                    "update_bytes": float(np.mean([row.update_bytes for row in own])),
                    "step_ms": float(np.mean([row.step_ms for row in own])),
                }
            )
    return lines


def save(rows: Sequence[Row], folder: Path = RESULTS) -> Path:
    """Write the results as JSON."""
    content = {"summary": summarise(rows), "rows": [asdict(row) for row in rows]}
    return keep("tailor", "A task block beside a head and the whole net", content, folder)


def main(arguments: Sequence[str]) -> None:
    """Run, print and perhaps keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks tailor")
    parser.add_argument("--quick", action="store_true", help="one seed, few passes")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    chosen = parser.parse_args(arguments)
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if chosen.quick else chosen.seeds))
    passes = (QUICK_EPOCHS, QUICK_EPOCHS) if chosen.quick else (EPOCHS, BACKBONE_EPOCHS)
    rows = run(list(seeds), *passes)
    for line in summarise(rows):
        error = "" if line["standard_error"] is None else f" +- {100 * line['standard_error']:.1f}"
        print(
            f"{line['task']:24s} {line['way']:22s} {100 * line['accuracy']:5.1f} %{error}"
            f"  {line['values']:8.0f} values  {line['update_bytes']:8.0f} bytes  {line['step_ms']:6.2f} ms a step"
        )
    if chosen.save:
        print(f"saved: {save(rows)}")
