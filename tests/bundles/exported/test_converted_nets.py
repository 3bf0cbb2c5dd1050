"""Nets of Keras's converter and of skl2onnx, from committed files, beside the same written in torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_agent.drift.losses import LossName
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.checks import checked_model, trainable_names
from server_bridge.bundles.source import served_model
from tests.bundles.gradients.differences import Array, gradients_of
from tests.bundles.nets import initialisers, save_npz

pytestmark = pytest.mark.oracle

FILES = Path(__file__).with_name("files")
NEIGHBOURS = 12
Tensors = dict[str, Any]


def _image(f: Any, w: Tensors, x: Any) -> Any:
    """Channels last; TensorFlow pads what is missing at the end."""
    x = f.conv2d(x.permute(0, 3, 1, 2), w["merged_input:0"], w["batchnorm/sub:0"], padding=1).clamp(0, 6)
    x = f.max_pool2d(f.pad(x, (0, 1, 0, 1), value=-1e9), 3, stride=2)
    x = f.conv2d(f.pad(x, (0, 1, 0, 1)), w["const_fold_opt__39"], w["depthwise_conv2d_1/Squeeze:0"], stride=2, groups=6)
    x = f.conv2d(x, w["conv2d_1_2/convolution/ReadVariableOp:0"], w["conv2d_1_2/Squeeze:0"])
    x = x * x.sigmoid()
    there = f.pad(x * 0 + 1, (0, 1, 0, 1))
    x = f.avg_pool2d(f.pad(x, (0, 1, 0, 1)), 2, stride=1) / f.avg_pool2d(there, 2, stride=1)
    return x.mean((2, 3)) @ w["dense_1/Cast/ReadVariableOp:0"] + w["BiasAdd/ReadVariableOp:0"]


def _series(f: Any, w: Tensors, x: Any) -> Any:
    x = f.pad(x.permute(0, 2, 1), (2, 0))
    x = f.conv1d(x, w["conv1d_1/convolution/ExpandDims_1:0"][:, :, 0]) + w["const_fold_opt__108"]
    x = f.conv1d(f.pad(x.relu(), (4, 0)), w["conv1d_1_2/convolution/ExpandDims_1:0"][:, :, 0], dilation=2)
    x = (x + w["const_fold_opt__110"]).tanh().permute(0, 2, 1)
    mean = x.mean(2, keepdim=True)
    scale = w["layer_normalization_1/Reshape:0"] / ((x - mean).square().mean(2, keepdim=True) + 1e-3).sqrt()
    x = x * scale + (w["layer_normalization_1/Reshape_1:0"] - mean * scale)
    x = f.elu(x.flatten(1) @ w["dense_1_1/Cast/ReadVariableOp:0"] + w["BiasAdd/ReadVariableOp:0"])
    return x @ w["dense_2_1/Cast/ReadVariableOp:0"] + w["dense_2_1/Add/ReadVariableOp:0"]


def _sklearn(act: str) -> Callable[[Any, Tensors, Any], Any]:
    def forward(f: Any, w: Tensors, x: Any) -> Any:
        for place in ("", "1"):
            x = getattr(x @ w[f"coefficient{place}"] + w[f"intercepts{place}"], act)()
        return x @ w["coefficient2"] + w["intercepts2"]

    return forward


def _of_two(f: Any, w: Tensors, x: Any) -> Any:
    one = _sklearn("relu")(f, w, x)
    return f.pad(one, (1, 0))


@dataclass(frozen=True)
class Converted:
    """A file and the same in torch; ``scaled`` files standardise their input first, frozen."""

    file: str
    forward: Callable[[Any, Tensors, Any], Any]
    classes: int
    scaled: bool = False

    @property
    def loss(self) -> LossName:
        return "cross-entropy" if self.classes else "mse"


CONVERTED = [
    Converted("keras-image", _image, 4),
    Converted("keras-series", _series, 0),
    Converted("sklearn-three", _sklearn("relu"), 3, scaled=True),
    Converted("sklearn-names", _sklearn("relu"), 3, scaled=True),
    Converted("sklearn-two", _of_two, 2, scaled=True),
    Converted("sklearn-tensor", _of_two, 2, scaled=True),
    Converted("sklearn-value", _sklearn("tanh"), 0, scaled=True),
]
converted = pytest.mark.parametrize("net", CONVERTED, ids=lambda net: net.file)


def read(net: Converted) -> onnx.ModelProto:
    return onnx.load(FILES / f"{net.file}.onnx")


def data(net: Converted, model: onnx.ModelProto, rows: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(rows)
    shape = [dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim][1:]
    x = rng.normal(size=(rows, *shape)).astype(np.float32)
    return x, rng.integers(0, net.classes, rows) if net.classes else rng.normal(size=rows).astype(np.float32)


def standardised(model: onnx.ModelProto, x: Array) -> Array:
    """What the file's own Scaler makes of the input."""
    scaler = model.graph.node[0]
    lone = helper.make_model(
        helper.make_graph(
            [scaler],
            "scaler",
            list(model.graph.input),
            [helper.make_tensor_value_info(scaler.output[0], TensorProto.FLOAT, None)],
        ),
        opset_imports=model.opset_import,
        ir_version=8,
    )
    return Session("scaler", lone.SerializeToString(), {}, threads=1).run({model.graph.input[0].name: x})[
        scaler.output[0]
    ]


class Twin:
    """The net in torch, with the file's tensors by the ends of their names."""

    def __init__(self, net: Converted, model: onnx.ModelProto, trainable: list[str], dtype: str) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch, self.net, self.dtype = torch, net, getattr(torch, dtype)
        given = initialisers(model)
        self.weights: Tensors = {
            name: torch.tensor(given[name], dtype=self.dtype).requires_grad_() for name in trainable
        }

    def gradients(self, x: Array, labels: Array) -> tuple[float, dict[str, Array]]:
        f = self.torch.nn.functional
        found = self.net.forward(f, _Ends(self.weights), self.torch.tensor(x, dtype=self.dtype))
        targets = self.torch.tensor(labels, dtype=None if self.net.classes else self.dtype)
        loss = f.cross_entropy(found, targets) if self.net.classes else f.mse_loss(found[:, 0], targets)
        loss.backward()
        return float(loss.detach()), {name: tensor.grad.numpy() for name, tensor in self.weights.items()}


class _Ends(dict[str, Any]):
    """Looked up by the end of a key."""

    def __missing__(self, end: str) -> Any:
        fitting = [name for name in self if name.endswith(end)]
        assert len(fitting) == 1, (end, fitting)
        return self[fitting[0]]


@converted
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_gradients_are_torchs(net: Converted, rows: int) -> None:
    """Over inputs that differ in their last bits: on one, either side's error is the luck of a few roundings."""
    model = served_model(checked_model(read(net)), net.loss)
    trainable = trainable_names(model, ["*"])
    drawn, labels = data(net, model, rows)
    rng = np.random.default_rng(0)
    errors = []
    for last_bits in range(NEIGHBOURS):
        x = (drawn * (1 + np.sign(last_bits) * rng.integers(-2, 3, drawn.shape) * 2.0**-23)).astype(np.float32)
        inside = standardised(read(net), x) if net.scaled else x
        expected_loss, expected = Twin(net, model, trainable, "float64").gradients(inside, labels)
        narrow = Twin(net, model, trainable, "float32").gradients(inside, labels)[1]
        loss, gradients = gradients_of(model, trainable, net.loss, x, labels)
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        for name, value in expected.items():
            np.testing.assert_allclose(gradients[name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)
        errors.append([_norm(found, expected) for found in (gradients, narrow, dict.fromkeys(expected, 0))])
    ours, theirs, size = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours <= max(2 * theirs, 2.4e-7 * size)


@converted
def test_bundle_serves_and_trains(net: Converted, tmp_path: Path) -> None:
    x, labels = data(net, read(net), 96)
    labels = (x.reshape(96, -1)[:, 0] > 0).astype(int) if net.classes else x.reshape(96, -1)[:, 0]
    name = read(net).graph.input[0].name
    calibration = save_npz(tmp_path / "c.npz", **{name: x, "label": labels})
    bundle = build_bundle(read(net), calibration, BuildSettings(["*"], net.loss), tmp_path / "bundle")
    model = InferenceModel(bundle, bundle.initial_weights())
    assert model.run({name: x})[model.primary].shape == (96, net.classes or 1)
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    losses = [step.step({name: x}, labels, learning_rate=0.01) for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("file", ["sklearn-three", "sklearn-two", "sklearn-names", "sklearn-tensor"])
def test_probabilities_that_are_served_are_those_of_the_file(file: str) -> None:
    net = next(net for net in CONVERTED if net.file == file)
    x, _ = data(net, read(net), 7)
    session = Session(file, read(net).SerializeToString(), {}, threads=1)
    found: Any = session.run({"X": x})[session.outputs[1]]
    expected = np.array([list(row.values()) for row in found]) if isinstance(found, list) else found
    model = served_model(checked_model(read(net)), "cross-entropy")
    logits = Session("served", model.SerializeToString(), {}, threads=1).run({"X": x})[model.graph.output[0].name]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def _norm(found: Any, expected: dict[str, Array]) -> float:
    return float(np.sqrt(sum(np.square(found[name] - value).sum() for name, value in expected.items())))
