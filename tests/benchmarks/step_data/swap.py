"""What a session costs to make, and that weights supplied from outside serve as if they were baked in."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.inference import INFERENCE_GRAPH
from edge_agent.model.training_step import TrainingStep
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import ModelServer

REPEATS = 7


@dataclass(frozen=True, slots=True)
class Swap:
    """Times are medians of CPU milliseconds.

    Attributes:
        session_ms: of making a training step, its buffers included.
        swap_ms: of preparing other weights beside the active ones and making them the active ones.
        bit_equal: whether they then predict as the served graph does with these weights in its file.
    """

    case: str
    session_ms: float
    swap_ms: float
    bit_equal: bool

    def as_json(self) -> dict[str, Any]:
        """For the results' file."""
        return asdict(self)


def measure(name: str, folder: Path) -> Swap:
    """Measure a case's folder as `made.make` left it."""
    bundle = load_bundle(folder / "bundle")
    weights = bundle.initial_weights()
    session_ms = _median_ms(lambda: TrainingStep(bundle, "adam", weights))
    rng = np.random.default_rng(1)
    other = {
        key: (value + rng.normal(scale=0.01, size=value.shape)).astype(np.float32) for key, value in weights.items()
    }
    server = ModelServer(bundle, weights, "0" * 64, 1, "root")
    swap_ms = _median_ms(lambda: server.swap(server.prepare(bundle, other, "1" * 64, 2, "root")))
    with np.load(folder / "batch.npz") as data:
        x = data["x"]
    batch = SampleBatch([str(row) for row in range(len(x))], [0.0] * len(x), {bundle.manifest.inputs[0].name: x})
    return Swap(name, session_ms, swap_ms, np.array_equal(server.process(batch).outputs, _baked(bundle, other, x)))


def _baked(bundle: Bundle, weights: dict[str, Any], x: Any) -> Any:
    """What the served graph predicts with these weights written into its file."""
    model = onnx.load_model_from_string(bundle.read(INFERENCE_GRAPH))
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def _median_ms(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(REPEATS):
        began_s = time.process_time()
        work()
        spent.append(time.process_time() - began_s)
    return statistics.median(spent) * 1e3
