"""One side of the comparison in a process of its own: trains as often as it is told, on a batch that never changes.

``python -m tests.benchmarks.step_data.side ours|alone|torch NAME FOLDER OPTIMISER THREADS``; a number of steps a line
on standard input, a JSON object a line on standard output: CPU seconds, seconds, the last loss, peak resident bytes.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LEARNING_RATE = 0.001
OPTIMISERS = ("sgd", "adam")

Steps = Callable[[int], float]
"""Trains so many steps and gives the loss before the last."""


def ours(folder: Path, optimiser: str, threads: int, *, alone: bool = False) -> Steps:
    """The bundle's training graph, as a gateway's round runs it: a small net's steps several at a time.

    Args:
        alone: each step by itself.
    """
    from edge_agent.model.bundle import load_bundle
    from edge_agent.model.training_step import TrainingStep

    bundle = load_bundle(folder / "bundle")
    trainer = TrainingStep(bundle, optimiser, bundle.initial_weights(), threads=threads)
    with np.load(folder / "batch.npz") as batch:
        features, labels = {bundle.manifest.inputs[0].name: batch["x"]}, batch["label"]

    def singly(count: int) -> float:
        loss = 0.0
        for _ in range(count):
            loss = trainer.step(features, labels, learning_rate=LEARNING_RATE)
        return loss

    at_once = trainer.steps_at_once(sum(array.nbytes for array in features.values()))
    batches = {name: np.stack([array] * at_once) for name, array in features.items()}
    told = np.stack([labels] * at_once)

    def together(count: int) -> float:
        loss = 0.0
        for done in range(0, count, at_once):
            part = min(at_once, count - done)
            fed = {name: array[:part] for name, array in batches.items()}
            loss = float(trainer.steps(fed, told[:part], learning_rates=[LEARNING_RATE] * part).losses[-1])
        return loss

    return singly if alone or at_once == 1 else together


def eager(folder: Path, name: str, optimiser: str, threads: int) -> Steps:
    """Torch, eager, as its tutorials write it."""
    import torch

    from tests.benchmarks.step_data.cases import case
    from tests.benchmarks.step_data.nets import draw

    torch.set_num_threads(threads)
    net = draw(case(name), 0)
    net.load_state_dict(torch.load(folder / "torch.pt"))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser]
    descent = kind(net.parameters(), LEARNING_RATE)
    with np.load(folder / "batch.npz") as batch:
        features, labels = torch.tensor(batch["x"]), torch.tensor(batch["label"])

    def steps(count: int) -> float:
        value = 0.0
        for _ in range(count):
            descent.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(net(features), labels)
            loss.backward()
            descent.step()
            value = loss.item()
        return value

    return steps


def peak_bytes() -> int:
    """The most memory this process has had resident."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def main(which: str, name: str, folder: Path, optimiser: str, threads: int) -> None:
    """Answer every line."""
    mine = which != "torch"
    alone = which == "alone"
    steps = ours(folder, optimiser, threads, alone=alone) if mine else eager(folder, name, optimiser, threads)
    for line in sys.stdin:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        loss = steps(int(line))
        spent = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - began_s}
        print(json.dumps({**spent, "loss": loss, "peak_bytes": peak_bytes()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
