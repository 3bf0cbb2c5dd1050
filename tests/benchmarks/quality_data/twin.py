"""The same fine-tuning twice: by the bundle's training graph, and by torch from the graph that is served."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import INFERENCE_GRAPH, InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.descent import minibatches
from edge_agent.wire.tensors import Weights

Rows = NDArray[np.int64]
Functional = torch.nn.functional


@dataclass(frozen=True)
class Task:
    """A fine-tuning: where it begins, on what, how, and what tells how good it is.

    Args:
        weights: it starts from.
        features, labels: (n, ...) float32 and (n,) int64 to train on.
        test_features, test_labels: held out.
        optimiser: a training graph's name, ``adam`` or ``momentum``.
    """

    bundle: Bundle
    weights: Weights
    features: NDArray[np.float32]
    labels: Rows
    test_features: NDArray[np.float32]
    test_labels: Rows
    optimiser: str
    learning_rate: float
    epochs: int
    batch_size: int = 32
    seed: int = 0

    @property
    def source(self) -> str:
        """The model's input."""
        return self.bundle.manifest.inputs[0].name

    def batches(self) -> Iterator[Rows]:
        """The rows of every step, in order."""
        rng = np.random.default_rng([self.seed, 0x0DE2])
        for _ in range(self.epochs):
            yield from minibatches(len(self.labels), self.batch_size, rng)


def tuned_here(task: Task) -> Weights:
    """Weights after all steps of the training graph."""
    trainer = TrainingStep(task.bundle, task.optimiser, task.weights)
    for rows in task.batches():
        trainer.step({task.source: task.features[rows]}, task.labels[rows], learning_rate=task.learning_rate)
    return trainer.weights()


def tuned_by_torch(task: Task, *, wide: bool = False) -> Weights:
    """Weights after the same steps in torch, one thread; ``wide``: in float64, rounded at the end."""
    torch.set_num_threads(1)
    dtype = torch.float64 if wide else torch.float32
    net = TorchNet(task.bundle, task.weights, dtype)
    descent: Any
    if task.optimiser == "adam":
        descent = torch.optim.Adam(net.parameters, task.learning_rate)
    else:
        descent = torch.optim.SGD(net.parameters, task.learning_rate, momentum=0.9)
    features, labels = torch.tensor(task.features, dtype=dtype), torch.tensor(task.labels)
    for rows in task.batches():
        descent.zero_grad()
        loss: Any = Functional.cross_entropy(net(features[rows]), labels[rows])
        loss.backward()
        descent.step()
    return {name: value.detach().numpy().astype(np.float32) for name, value in net.trained.items()}


def accuracy(task: Task, weights: Weights) -> float:
    """Share of the held-out samples that the served model gets right."""
    model = InferenceModel(task.bundle, weights)
    logits = model.run({task.source: task.test_features}, [model.primary])[model.primary]
    return float((logits.argmax(1) == task.test_labels).mean())


class TorchNet:
    """A served graph in torch's operators, with the given tensors as parameters."""

    def __init__(self, bundle: Bundle, weights: Weights, dtype: torch.dtype) -> None:
        # The trained tensors' data lies in another file; it is given here.
        self._graph = onnx.load_model_from_string(bundle.read(INFERENCE_GRAPH)).graph
        self.trained = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in weights.items()}
        self.parameters = list(self.trained.values())
        self._fixed = {
            tensor.name: _tensor(numpy_helper.to_array(tensor), dtype)
            for tensor in self._graph.initializer
            if tensor.name not in self.trained
        }

    def __call__(self, x: Any) -> Any:
        """The first output."""
        values: dict[str, Any] = {**self._fixed, **self.trained, self._graph.input[0].name: x}
        for node in self._graph.node:
            given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            values[node.output[0]] = _OPERATORS[node.op_type](given, *(values[name] for name in node.input))
        return values[self._graph.output[0].name]


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Floating-point numbers in the type wanted, others as they are."""
    return torch.tensor(array, dtype=dtype if array.dtype.kind == "f" else None)


def _gemm(given: Mapping[str, Any], a: Any, b: Any, c: Any) -> Any:
    return a @ (b.T if given.get("transB") else b) + c


def _conv(given: Mapping[str, Any], x: Any, weight: Any, bias: Any) -> Any:
    rank = weight.ndim - 2
    convolve: Any = Functional.conv1d if rank == 1 else Functional.conv2d
    pads = tuple(given.get("pads", [0] * 2 * rank))[:rank]
    return convolve(x, weight, bias, tuple(given.get("strides", [1] * rank)), pads)


def _pool(given: Mapping[str, Any], x: Any) -> Any:
    size = tuple(given["kernel_shape"])
    pool: Any = Functional.max_pool1d if len(size) == 1 else Functional.max_pool2d
    return pool(x, size, tuple(given["strides"]))


def _norm(given: Mapping[str, Any], x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return Functional.batch_norm(x, mean, variance, scale, bias, training=False, eps=given["epsilon"])


_OPERATORS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "BatchNormalization": _norm,
        "Conv": _conv,
        "Flatten": lambda given, x: x.flatten(1),
        "Gemm": _gemm,
        "MaxPool": _pool,
        "Mul": lambda given, a, b: a * b,
        "Relu": lambda given, x: Functional.relu(x),
        "Sub": lambda given, a, b: a - b,
    }
)
