"""A tailored net beside the same in torch: eq. 4 and its gradients."""

from typing import Any

import numpy as np
import pytest

from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from tests.bundles.nets import initialisers
from tests.bundles.tailor.backbones import residual, tailored_bundle, two_tasks

pytestmark = pytest.mark.oracle

RATE = 1.0


class Torch:
    """The residual backbone with one task's block, in float64."""

    def __init__(self, frozen: dict[str, Any], block: dict[str, Any], task: str) -> None:
        import torch

        self.torch, self.task = torch, task
        self.frozen = {name: torch.tensor(value, dtype=torch.float64) for name, value in frozen.items()}
        self.block = {
            name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in block.items()
        }

    def logits(self, x: Any) -> Any:
        f, w = self.torch.nn.functional, self.frozen
        x = self.torch.tensor(x, dtype=self.torch.float64)
        first = f.relu(f.conv2d(x, w["s.w"], padding=1))
        inner = f.conv2d(f.relu(f.conv2d(first, w["a1.w"], padding=1, stride=2)), w["a2.w"], padding=1)
        raw = f.relu(inner + f.conv2d(first, w["as.w"], stride=2))
        second = self.mixed(2, raw, {1: f.max_pool2d(first, 2)})
        inner = f.conv2d(f.relu(f.conv2d(second, w["b1.w"], padding=1)), w["b2.w"], padding=1)
        raw = f.relu(inner + second).mean((2, 3), keepdim=True)
        third = self.mixed(3, raw, {1: f.max_pool2d(first, 8), 2: f.max_pool2d(second, 4)})
        return third.flatten(1) @ self.part("head.weight") + self.part("head.bias")

    def mixed(self, layer: int, raw: Any, sources: dict[int, Any]) -> Any:
        alphas = self.torch.softmax(self.part(f"layer{layer}.mix")[0], 0)
        total = alphas[0] * raw
        for place, (source, value) in enumerate(sources.items(), start=1):
            proxy = self.torch.nn.functional.conv2d(value, self.part(f"layer{layer}.from{source}"))
            total = total + alphas[place] * proxy
        return total

    def part(self, name: str) -> Any:
        return self.block[f"{self.task}.{name}"]


def test_outputs_and_one_step_are_torchs(tmp_path: Any) -> None:
    model = residual()
    bundle = tailored_bundle(tmp_path, model)
    weights, rng = bundle.initial_weights(), np.random.default_rng(3)
    weights = {name: (value + 0.3 * rng.normal(size=value.shape)).astype(np.float32) for name, value in weights.items()}
    data = two_tasks(model, 34)
    for task in ("press", "weld"):
        rows = data["task"] == task
        x, labels = data["x"][rows], data["label"][rows].astype(np.int64)
        own = {name: value for name, value in weights.items() if name.startswith(f"{task}.")}
        twin = Torch(initialisers(model), own, task)
        logits = twin.logits(x)
        ours = InferenceModel(bundle, weights, task=task).run({"x": x})["y"]
        np.testing.assert_allclose(ours, logits.detach().numpy(), rtol=2e-5, atol=2e-5)
        loss = twin.torch.nn.functional.cross_entropy(logits, twin.torch.tensor(labels))
        loss.backward()
        step = TrainingStep(bundle, f"{task}-sgd", weights)
        assert step.step({"x": x}, labels, learning_rate=RATE) == pytest.approx(float(loss.detach()), rel=1e-5)
        trained = step.weights()
        for name, tensor in twin.block.items():
            gradient = np.asarray(tensor.grad)
            found = (weights[name].astype(np.float64) - trained[name]) / RATE
            # the difference of two float32 numbers: their rounding over the rate is the floor
            floor = 1e-6 * np.abs(weights[name]).max() / RATE
            assert np.abs(found - gradient).max() <= 2e-5 * np.abs(gradient).max() + floor, name
            assert np.abs(gradient).max() > 100 * floor, name
