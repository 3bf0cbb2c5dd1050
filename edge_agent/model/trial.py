"""Running a bundle's graphs on random data of the right shapes: whether they work, their time and memory."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.head import fed_inputs
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.manifest import TensorSpec, TrainingGraphSpec
from edge_agent.wire.tasks import seen_by

FREE_SIZE = 16
"""What a free dimension is that is not the batch."""
LEARNING_RATE = 1e-4
_WARM_UP, _RUNS_MAX, _ENOUGH_S = 2, 30, 0.5
_FLOAT_BYTES = 4
_INPUT_BYTES_CAP = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trial:
    """What some runs at one batch size took.

    Attributes:
        batch: samples a run.
        run_ms: median wall time of a run, one thread.
        peak_bytes: the most memory that the process has had resident until then.
    """

    batch: int
    run_ms: float
    peak_bytes: int


def try_inference(bundle: Bundle, batches: Sequence[int], *, task: str | None = None) -> list[Trial]:
    """Serve random samples under the bundle's own weights.

    Raises:
        DataError: the graph does not run, or gives another number of rows or what is not finite (named).
    """
    model = InferenceModel(bundle, bundle.initial_weights(), task=task)
    trials = []
    for batch in batches:
        features = random_features(bundle.manifest.inputs, batch)
        output = model.run(features)[model.primary]
        if len(output) != batch or not np.isfinite(output).all():
            raise DataError(
                f"inference gives {list(output.shape)} values for {batch} random samples, or not finite ones"
            )
        trials.append(_timed(batch, lambda fed=features: model.run(fed)))  # type: ignore[misc]  # bound at once
    return trials


def try_training(bundle: Bundle, graph: str, batches: Sequence[int]) -> list[Trial]:
    """Train on random samples from the bundle's own weights; each batch size twice, which must agree bit for bit.

    Raises:
        DataError: the graph does not run, a loss or weight is not finite, or two runs differ (named).
    """
    step = TrainingStep(bundle, graph, bundle.initial_weights())
    classes = seen_by(bundle.manifest, step.spec.task).classes
    trials = []
    for batch in batches:
        features = random_features(fed_inputs(bundle.manifest, step.spec), batch)
        labels = random_labels(step.spec, classes, batch)
        ends = []
        for _ in range(2):
            step.load(bundle.initial_weights())
            loss = step.step(features, labels, learning_rate=LEARNING_RATE)
            ends.append({name: value.tobytes() for name, value in step.weights().items()})
            _refuse_odd(graph, loss, step)
        if ends[0] != ends[1]:
            raise DataError(f"training graph {graph!r} gives other weights the second time")
        trials.append(_timed(batch, lambda fed=features, told=labels: _train(step, fed, told)))  # type: ignore[misc]  # bound at once
    return trials


def buffer_bytes(bundle: Bundle, spec: TrainingGraphSpec) -> int:
    """What a training step keeps between steps: two sets of parameters, statistics and states, and what it pulls to.

    Gradients and activations come on top, while it runs.
    """
    sizes = {tensor.name: int(np.prod(tensor.shape, dtype=np.int64)) for tensor in bundle.manifest.trainable}
    trained = sum(sizes[name] for name in spec.trainable)
    renewed = sum(sizes[name] for name in spec.statistics)
    values = 2 * (trained * (1 + len(spec.state)) + renewed) + (trained if spec.anchored else 0)
    return _FLOAT_BYTES * values


def random_features(inputs: Sequence[TensorSpec], rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Normal values for floats, zeros for the rest: a whole number that is looked up may be no other.

    Raises:
        DataError: they would take more than a gigabyte (named): a manifest can say any size.
    """
    rng = np.random.default_rng(seed)
    features: dict[str, NDArray[Any]] = {}
    for spec in inputs:
        shape = [rows, *(size if isinstance(size, int) else FREE_SIZE for size in spec.shape[1:])]
        if (size_bytes := 8 * prod(shape)) > _INPUT_BYTES_CAP:
            raise DataError(f"input {spec.name!r}: {rows} samples of shape {shape[1:]} take {size_bytes:,} bytes")
        values = rng.normal(size=shape) if spec.dtype.startswith("float") else np.zeros(shape)
        features[spec.name] = values.astype(spec.dtype)
    return features


def random_labels(spec: TrainingGraphSpec, classes: int | None, rows: int, seed: int = 0) -> NDArray[Any] | None:
    """As a graph takes them; None for one without labels."""
    if spec.label_input is None:
        return None
    rng = np.random.default_rng(seed)
    return rng.normal(size=rows).astype(np.float32) if classes is None else rng.integers(0, classes, rows)


def resident_bytes(what: str) -> int:
    """Resident memory of this process: ``VmRSS`` now, ``VmHWM`` at its peak.

    Raises:
        DataError: the system has no /proc that says so.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    except OSError as error:
        raise DataError(f"/proc/self/status cannot be read: {error}", "memory is measured on Linux only") from error
    raise DataError(f"/proc/self/status has no {what}", "memory is measured on Linux only")


def _train(step: TrainingStep, features: Mapping[str, NDArray[Any]], labels: NDArray[Any] | None) -> None:
    step.step(features, labels, learning_rate=LEARNING_RATE)


def _refuse_odd(graph: str, loss: float, step: TrainingStep) -> None:
    if not np.isfinite(loss):
        raise DataError(f"training graph {graph!r}: the loss of random samples is {loss}")
    odd = [name for name, value in step.weights().items() if not np.isfinite(value).all()]
    if odd:
        raise DataError(f"training graph {graph!r}: {odd[0]!r} is not finite after a step on random samples")


def _timed(batch: int, run: Callable[[], object]) -> Trial:
    for _ in range(_WARM_UP):
        run()
    spent: list[float] = []
    while len(spent) < _RUNS_MAX and sum(spent) < _ENOUGH_S:
        began_s = time.perf_counter()
        run()
        spent.append(time.perf_counter() - began_s)
    return Trial(batch, 1000 * median(spent), resident_bytes("VmHWM"))
