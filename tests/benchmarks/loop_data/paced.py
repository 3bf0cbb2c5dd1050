"""Inference at a fixed rate: how long after a sample is due its prediction is there. A process of its own.

``python -m tests.benchmarks.loop_data.paced serve BUNDLE SECONDS``: a JSON list of seconds on standard output.
``python -m tests.benchmarks.loop_data.paced train BUNDLE``: trains as a gateway's worker does, until it is ended.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from edge_agent.model.bundle import Bundle, load_bundle

RATE_HZ = 100.0
WARM_UP = 20
BATCH = 32
NICE = 10
LEARNING_RATE = 1e-4


def serve(bundle: Bundle, seconds: float) -> list[float]:
    """A sample each hundredth of a second; latencies in seconds, from when it was due."""
    from edge_agent.samples.record import SampleBatch
    from edge_agent.serving.server import ModelServer

    server = ModelServer(bundle, bundle.initial_weights(), "0" * 64, 1, "root")
    (spec,) = bundle.manifest.inputs
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    rows = np.random.default_rng(0).normal(size=(BATCH, 1, *sizes)).astype(np.float32)
    began_s, late = time.perf_counter(), []
    for number in range(int(seconds * RATE_HZ)):
        due_s = began_s + number / RATE_HZ
        time.sleep(max(0.0, due_s - time.perf_counter()))
        server.process(SampleBatch([str(number)], [due_s], {spec.name: rows[number % BATCH]}))
        late.append(time.perf_counter() - due_s)
    return late[WARM_UP:]


def train(bundle: Bundle) -> None:
    """One thread, niced, one step after the other."""
    from edge_agent.model.training_step import TrainingStep

    os.nice(NICE)
    trainer = TrainingStep(bundle, "momentum", bundle.initial_weights())
    (spec,) = bundle.manifest.inputs
    rng = np.random.default_rng(0)
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    x = rng.normal(size=(BATCH, *sizes)).astype(np.float32)
    labels = rng.integers(0, bundle.manifest.classes or 1, BATCH)
    print("training", flush=True)
    while True:
        trainer.step({spec.name: x}, labels, learning_rate=LEARNING_RATE)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(load_bundle(Path(sys.argv[2])))
    else:
        print(json.dumps(serve(load_bundle(Path(sys.argv[2])), float(sys.argv[3]))))
