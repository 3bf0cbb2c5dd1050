"""One optimiser step at a time, by a training graph of the bundle."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.features import check_features
from edge_agent.model.head import fed_inputs
from edge_agent.model.inference import primary_output, refuse_unfit_weights
from edge_agent.model.session import RUNTIME_ERRORS, Session, first_line
from edge_agent.wire.manifest import Manifest, TrainingGraphSpec
from edge_agent.wire.tasks import seen_by
from edge_agent.wire.tensors import Weights

LOSS, LABEL = "loss", "label"
_Buffers = dict[str, NDArray[np.float32]]


class TrainingStep:
    """Parameters and optimiser state under a training graph. For one thread at a time.

    Two sets of buffers take turns as input and output: onnxruntime borrows the memory it is given, and
    one set for both gave NaN.

    Args:
        bundle: a loaded bundle.
        graph_name: one of its training graphs.
        weights: every trainable tensor of the bundle; copied.
        threads: threads inside an operator; results repeat bit for bit at a fixed count.

    Raises:
        DataError: no such graph, unfit weights (named), or a graph that onnxruntime refuses or that is not
            as the manifest says.
    """

    def __init__(self, bundle: Bundle, graph_name: str, weights: Weights, *, threads: int = 1) -> None:
        refuse_unfit_weights(weights, bundle.manifest)
        self.spec = bundle.training_graph(graph_name)
        self._manifest = seen_by(bundle.manifest, self.spec.task)
        self._fed = fed_inputs(bundle.manifest, self.spec)
        self._given = {name: np.array(value, dtype=np.float32) for name, value in weights.items()}
        self._session = Session(self.spec.file, bundle.read(self.spec.file), bundle.frozen(), threads=threads)
        _check_interface(self._session, self.spec, bundle.manifest)
        self._label = self.spec.label_input or LABEL
        self._loss = np.zeros((), dtype=np.float32)
        self._scalars = {name: np.zeros((), dtype=np.float32) for name in self.spec.scalars}
        self._sets = (_initial_buffers(self.spec, self._given), _initial_buffers(self.spec, self._given))
        self._bindings = (self._bind(0), self._bind(1))
        self._steps = 0

    def step(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any],
        *,
        learning_rate: float,
        scalars: Mapping[str, float] | None = None,
    ) -> float:
        """Train on one batch.

        Args:
            features: an array per model input, the batch first; for a head's graph the embedding by its name.
            labels: (n,) class numbers, or (n,) targets.
            learning_rate: positive and finite.
            scalars: others of the graph's, where its defaults are not wanted.

        Returns: the mean loss over the batch, before the step.

        Raises:
            DataError: an input or the labels are unfit (named): nothing has changed then.
        """
        size = check_features(features, self._fed)
        checked = check_labels(labels, size, self._manifest)
        if not (np.isfinite(learning_rate) and learning_rate > 0):
            raise DataError(f"learning rate {learning_rate} is not positive and finite")
        self._set_scalars(learning_rate, scalars or {})
        binding = self._bindings[self._steps % 2]
        for name, value in (*features.items(), (self._label, checked)):
            binding.bind_cpu_input(name, np.ascontiguousarray(value))
        try:
            self._session.native.run_with_iobinding(binding)
        except RUNTIME_ERRORS as error:
            raise DataError(f"{self.spec.file} cannot run: {first_line(error)}") from error
        self._steps += 1
        return float(self._loss)

    def weights(self) -> Weights:
        """A copy of every trainable tensor of the bundle; those that the graph does not train as given."""
        current = self._sets[self._steps % 2]
        return {name: current.get(name, value).copy() for name, value in self._given.items()}

    def _set_scalars(self, learning_rate: float, given: Mapping[str, float]) -> None:
        values = {**self.spec.defaults, **given, "learning_rate": learning_rate, "step": float(self._steps + 1)}
        for name, buffer in self._scalars.items():
            buffer[...] = values[name]

    def _bind(self, source: int) -> ort.IOBinding:
        binding = self._session.native.io_binding()
        for name, buffer in (*self._sets[source].items(), *self._scalars.items()):
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(buffer))
        for name, buffer in self._sets[1 - source].items():
            binding.bind_ortvalue_output(f"out.{name}", ort.OrtValue.ortvalue_from_numpy(buffer))
        binding.bind_ortvalue_output(LOSS, ort.OrtValue.ortvalue_from_numpy(self._loss))
        return binding


def check_labels(labels: NDArray[Any], size: int, manifest: Manifest) -> NDArray[Any]:
    """Labels as a training graph takes them; out of range they would train silently wrong.

    Args:
        labels: (n,) whole class numbers in 0..classes-1; or (n,) or (n, 1) finite targets.
        size: n, the features' batch.
        manifest: the bundle's.

    Returns: (n,) int64 for cross-entropy, (n,) float32 for mse.

    Raises:
        DataError: empty batch, wrong dtype, shape or range.
    """
    if size < 1:
        raise DataError("the batch is empty")
    if labels.shape not in ((size,), (size, 1)):
        raise DataError(f"labels have shape {list(labels.shape)}, [{size}] is needed")
    flat = labels.reshape(size)
    if manifest.loss == "mse":
        return _targets(flat)
    if flat.dtype.kind not in "iu":
        raise DataError(f"labels are {flat.dtype}, whole class numbers are needed")
    classes = manifest.classes or 0
    outside = (flat < 0) | (flat >= classes)
    if outside.any():
        raise DataError(f"label {flat[outside][0]} is outside 0..{classes - 1}")
    return flat.astype(np.int64)


def _targets(flat: NDArray[Any]) -> NDArray[np.float32]:
    if flat.dtype.kind not in "fiu":
        raise DataError(f"labels are {flat.dtype}, numbers are needed")
    targets = flat.astype(np.float32)
    if not np.isfinite(targets).all():
        raise DataError("a label is not finite")
    return targets


def _initial_buffers(spec: TrainingGraphSpec, weights: Weights) -> _Buffers:
    """Parameters as given and states of zeros, by graph input name."""
    buffers: _Buffers = {name: weights[name].copy() for name in (*spec.trainable, *spec.statistics)}
    for state in spec.state:
        buffers.update({f"{state}.{name}": np.zeros_like(weights[name]) for name in spec.trainable})
    return buffers


def _check_interface(session: Session, spec: TrainingGraphSpec, manifest: Manifest) -> None:
    """Refuse a training graph whose inputs and outputs are not as its manifest entry says."""
    primary_output(manifest)
    states = [f"{state}.{name}" for state in spec.state for name in spec.trainable]
    carried = [*spec.trainable, *spec.statistics, *states]
    inputs = {
        *(tensor.name for tensor in fed_inputs(manifest, spec)),
        spec.label_input or LABEL,
        *carried,
        *spec.scalars,
    }
    outputs = {LOSS, *(f"out.{name}" for name in carried)}
    unknown_scalars = set(spec.scalars) - {"learning_rate", "step", *spec.defaults}
    if unknown_scalars:
        raise DataError(f"{spec.file} needs scalar {sorted(unknown_scalars)[0]!r}, unknown to this agent")
    for kind, wanted, found in (("input", inputs, session.inputs), ("output", outputs, session.outputs)):
        odd = sorted(wanted.symmetric_difference(found))
        if odd:
            raise DataError(f"{spec.file}: {kind} {odd[0]!r} is not as the manifest says")
