"""A small dense net, trained and scored by the bundle's graphs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import sample_losses
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import INFERENCE_GRAPH
from edge_agent.model.session import Session
from edge_agent.model.step_inputs import initial_buffers
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.benchmarks.cohorts_data.real import GRAPH, Samples, dense_net

SOURCE = "x"


def make_bundle(widths: Sequence[int], sample: Samples, seed: int, folder: Path) -> Bundle:
    """A bundle with weights drawn by the seed."""
    np.savez(folder / "calibration.npz", **{SOURCE: sample.features, "label": sample.labels})  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    settings = BuildSettings(trainable=("*.weight", "*.bias"), loss="cross-entropy")
    return build_bundle(dense_net(widths, SOURCE, seed), folder / "calibration.npz", settings, folder / "bundle")


class Net:
    """Local training and scores under any weights.

    One session of the training graph serves all clients of a run: opening one costs as much as a local round.

    Args:
        bundle: of a dense net.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._spec = bundle.training_graph(GRAPH)
        self._session = Session(self._spec.file, bundle.read(self._spec.file), {}, threads=1)
        self._inference = bundle.read(INFERENCE_GRAPH)

    def train(self, base: Weights, batches: Sequence[Samples], learning_rate: float) -> Weights:
        """Weights after a step on each batch, the optimiser's state beginning at zero."""
        state: dict[str, NDArray[Any]] = dict(initial_buffers(self._spec, base)[0])
        for number, batch in enumerate(batches, 1):
            scalars = {**self._spec.defaults, "learning_rate": learning_rate, "step": number}
            feeds: dict[str, NDArray[Any]] = {SOURCE: batch.features, "label": batch.labels, **state}
            feeds.update({name: np.array(scalars[name], np.float32) for name in self._spec.scalars})
            outputs = self._session.run(feeds)
            state = {name: outputs[f"out.{name}"] for name in state}
        return {name: state[name] for name in base}

    def loss(self, weights: Weights, samples: Samples) -> float:
        """Mean cross-entropy."""
        return float(sample_losses("cross-entropy", self._logits(weights, samples.features), samples.labels).mean())

    def accuracy(self, weights: Weights, samples: Samples) -> float:
        """Share of right predictions."""
        return float(np.mean(self._logits(weights, samples.features).argmax(1) == samples.labels))

    def _logits(self, weights: Weights, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return Session(INFERENCE_GRAPH, self._inference, weights, threads=1).run({SOURCE: features})["logits"]
