"""What serving adds to a bare onnxruntime session, and what a hot swap costs."""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import ModelServer
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.report import Comparison
from tests.e2e.toy import FEATURES, toy_bundle, toy_net

TITLE = "Serving: a toy MLP, CPU time of 2,000 calls"
CALLS = 2000


def run(*, runs: int) -> list[Comparison]:
    """Compare ``ModelServer.process`` with a bare ``session.run`` at two batch sizes."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(toy_net().SerializeToString(), options)
    with tempfile.TemporaryDirectory() as folder:
        bundle = toy_bundle(Path(folder))
        weights = bundle.initial_weights()
        server = ModelServer(bundle, weights, bundle.manifest.files["weights.safetensors"], 1, "root")
        return [_compare(session, server, size, runs) for size in (1, 32)]


def _compare(session: ort.InferenceSession, server: ModelServer, size: int, runs: int) -> Comparison:
    x = np.random.default_rng(0).normal(size=(size, FEATURES)).astype(np.float32)
    batch = SampleBatch([f"s{i}" for i in range(size)], [0.0] * size, {"x": x})

    def bare() -> None:
        for _ in range(CALLS):
            session.run(None, {"x": x})

    def ours() -> None:
        for _ in range(CALLS):
            server.process(batch)

    return Comparison(f"batch {size}", interleave({"bare session.run": bare, "ModelServer.process": ours}, runs=runs))
