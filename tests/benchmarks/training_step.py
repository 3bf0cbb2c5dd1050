"""A training step on stock onnxruntime beside torch eager: the demo's net, batch 32, Adam, one thread."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.model.bundle import Bundle
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.demo.data import INPUT
from server_bridge.demo.net import TRAINABLE_PATTERNS, draw_net
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.report import Comparison

TITLE = "Training step: conv1d net of the demo (26,327 parameters), batch 32, Adam, CPU time of 50 steps"
STEPS = 50
CLASSES = 7


def run(*, runs: int) -> list[Comparison]:
    """Compare with torch eager; without torch there is no peer and nothing to say.

    Raises:
        ModuleNotFoundError: torch is not installed (`make oracle`).
    """
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 6, 100)).astype(np.float32)
    label = rng.integers(0, CLASSES, 32)
    with tempfile.TemporaryDirectory() as folder:
        bundle = _bundle(Path(folder), rng)
        step = TrainingStep(bundle, "adam", bundle.initial_weights())

        def ours() -> None:
            for _ in range(STEPS):
                step.step({INPUT: x}, label, learning_rate=0.003)

        ways = {"torch eager": _torch_steps(torch, x, label), "training graph on onnxruntime": ours}
        return [Comparison("conv1d 6-16-32, dense 64", interleave(ways, runs=runs))]


def _bundle(folder: Path, rng: np.random.Generator) -> Bundle:
    net = draw_net(np.zeros(6, np.float32), np.ones(6, np.float32), classes=CLASSES, seed=0)
    arrays: dict[str, Any] = {
        INPUT: rng.normal(size=(200, 6, 100)).astype(np.float32),
        "label": rng.integers(0, CLASSES, 200),
    }
    np.savez(folder / "data.npz", **arrays)
    settings = BuildSettings(trainable=TRAINABLE_PATTERNS, loss="cross-entropy")
    return build_bundle(net, folder / "data.npz", settings, folder / "bundle")


def _torch_steps(torch: Any, x: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> Any:
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv1d(6, 16, 7, stride=2),
        nn.ReLU(),
        nn.Conv1d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(32 * 11, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )
    optimiser = torch.optim.Adam(net.parameters(), 0.003)
    features, classes = torch.tensor(x), torch.tensor(label)

    def steps() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(features), classes).backward()
            optimiser.step()

    return steps
