"""Training steps beside torch's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.gradients.differences import gradients_of
from tests.bundles.nets import CNN2D_TRAINABLE, classified, cnn2d, conv1d, initialisers, mlp, save_npz

pytestmark = pytest.mark.oracle

Tensors = dict[str, Any]
STEPS = 20


@dataclass(frozen=True)
class Twin:
    """A net here and in torch."""

    name: str
    model: onnx.ModelProto
    trainable: list[str]
    forward: Callable[[Any, Tensors, Any], Any]


def _mlp(f: Any, w: Tensors, x: Any) -> Any:
    return f.linear(f.relu(x @ w["a.w"] + w["a.b"]), w["b.w"], w["b.b"])


def _conv1d(f: Any, w: Tensors, x: Any) -> Any:
    first = f.relu(f.conv1d(x, w["a.w"], w["a.b"], stride=2))
    second = f.relu(f.conv1d(first, w["b.w"], w["b.b"], stride=2, padding=1))
    flat = f.max_pool1d(second, 2).flatten(1)
    return f.relu(flat @ w["c.w"] + w["c.b"]) @ w["d.w"] + w["d.b"]


def _cnn2d(f: Any, w: Tensors, x: Any) -> Any:
    first = f.conv2d(x, w["a.w"], padding=1)
    normed = f.batch_norm(first, w["n.mean"], w["n.var"], w["n.scale"], w["n.bias"], training=False, eps=1e-3)
    pooled = f.max_pool2d(f.relu(normed), 3, stride=2, padding=1)
    second = f.conv2d(pooled, w["b.w"], w["b.b"], stride=2, padding=1).sigmoid()
    return f.linear(second.mean((2, 3)), w["c.w"], w["c.b"])


TWINS = [
    Twin("mlp", mlp(), ["a.w", "a.b", "b.w", "b.b"], _mlp),
    Twin("conv1d", conv1d(), ["a.w", "a.b", "b.w", "b.b", "c.w", "c.b", "d.w", "d.b"], _conv1d),
    Twin("cnn2d", cnn2d(), CNN2D_TRAINABLE, _cnn2d),
]
twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)


class Reference:
    """The twin in torch, in float32 or float64."""

    def __init__(self, twin: Twin, dtype: str) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch, self.twin, self.dtype = torch, twin, getattr(torch, dtype)
        self.weights: Tensors = {n: torch.tensor(v, dtype=self.dtype) for n, v in initialisers(twin.model).items()}
        for name in twin.trainable:
            self.weights[name].requires_grad_()
        self.trained = [self.weights[name] for name in twin.trainable]

    def backward(self, x: Any, labels: Any) -> float:
        f = self.torch.nn.functional
        for tensor in self.trained:
            tensor.grad = None
        logits = self.twin.forward(f, self.weights, self.torch.tensor(x, dtype=self.dtype))
        loss = f.cross_entropy(logits, self.torch.tensor(labels))
        loss.backward()
        return float(loss.detach())

    def train(self, optimiser: str, rate: float, data: dict[str, Any], batch: int) -> dict[str, Any]:
        kinds: dict[str, Callable[[], Any]] = {
            "sgd": lambda: self.torch.optim.SGD(self.trained, rate),
            "momentum": lambda: self.torch.optim.SGD(self.trained, rate, momentum=0.9),
            "adam": lambda: self.torch.optim.Adam(self.trained, rate),
            "adamw": lambda: self.torch.optim.AdamW(self.trained, rate),
        }
        steps = kinds[optimiser]()
        for step in range(STEPS):
            rows = slice(step * batch, (step + 1) * batch)
            self.backward(data["x"][rows], data["label"][rows])
            steps.step()
        return {name: self.weights[name].detach().numpy() for name in self.twin.trainable}


@twins
def test_gradient_is_torchs(twin: Twin) -> None:
    data = classified(twin.model, 32)
    reference = Reference(twin, "float64")
    expected_loss = reference.backward(data["x"], data["label"])
    loss, gradients = gradients_of(twin.model, twin.trainable, "cross-entropy", data["x"], data["label"])
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for name, tensor in zip(twin.trainable, reference.trained, strict=True):
        expected = tensor.grad.numpy()
        np.testing.assert_allclose(gradients[name], expected, rtol=0, atol=2e-5 * np.abs(expected).max(), err_msg=name)


@twins
@pytest.mark.parametrize("batch", [1, 5, 17])
@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("momentum", 0.05), ("adam", 0.003), ("adamw", 0.003)])
def test_twenty_steps_are_as_close_to_float64_as_twice_torchs_own(
    twin: Twin, optimiser: str, rate: float, batch: int, bundles: dict[str, Bundle]
) -> None:
    """The measure is the L2 error of all parameters: Adam's sign-like steps make single elements jump.

    Where rounding decides which side of a kink a value is on, or Adam divides a gradient that is rounding alone, both
    errors are chance; of these draws none is above 1.7.
    """
    ratios = []
    for seed in range(3):
        data = classified(twin.model, STEPS * batch, seed=seed)
        trainer = TrainingStep(bundles[twin.name], optimiser, bundles[twin.name].initial_weights())
        for step in range(STEPS):
            rows = slice(step * batch, (step + 1) * batch)
            trainer.step({"x": data["x"][rows]}, data["label"][rows], learning_rate=rate)
        exact = Reference(twin, "float64").train(optimiser, rate, data, batch)
        torchs = _distance(Reference(twin, "float32").train(optimiser, rate, data, batch), exact)
        ratios.append(_distance(trainer.weights(), exact) / torchs)
    assert max(ratios) <= 2, ratios


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """A bundle of each twin."""
    folder = tmp_path_factory.mktemp("twins")
    made = {}
    for twin in TWINS:
        calibration = save_npz(folder / f"{twin.name}.npz", **classified(twin.model, 64, seed=6))
        made[twin.name] = build_bundle(
            twin.model, calibration, BuildSettings(twin.trainable, "cross-entropy"), folder / twin.name
        )
    return made


@twins
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_steps_repeat_bit_for_bit_at_a_number_of_threads(twin: Twin, threads: int, bundles: dict[str, Bundle]) -> None:
    data, bundle, ends = classified(twin.model, 64), bundles[twin.name], set()
    step = TrainingStep(bundle, "adam", bundle.initial_weights(), threads=threads)
    for _ in range(20):
        step.load(bundle.initial_weights())
        for rows in (slice(0, 32), slice(32, 64), slice(10, 27)):
            step.step({"x": data["x"][rows]}, data["label"][rows], learning_rate=0.01)
        ends.add(b"".join(value.tobytes() for value in step.weights().values()))
    assert len(ends) == 1


def _distance(found: dict[str, Any], exact: dict[str, Any]) -> float:
    return float(np.sqrt(sum(np.square(found[name].astype("f8") - value).sum() for name, value in exact.items())))
