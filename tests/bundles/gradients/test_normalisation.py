"""Normalisations' gradients beside torch's."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from tests.bundles.gradients.operator_twins import OperatorGraph, assert_as_torch, operator_model

oracle = pytest.mark.oracle
batches = st.sampled_from([1, 5, 17])
sizes = st.lists(st.integers(1, 7), min_size=1, max_size=3)
many = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def amplitude(x: Any, axes: tuple[int, ...], epsilon: float) -> float:
    """Of the terms of a normalisation's gradient, and of the offset that is taken off its input."""
    deviation = np.sqrt(x.astype(np.float64).var(axes) + epsilon).min()
    return float(30 * max(1.0, np.abs(x).max()) / deviation)


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.normal(size=shape) * rng.uniform(0.5, 3) + rng.normal()).astype(np.float32)


@oracle
@many
@given(batch=batches, shape=sizes, axis=st.integers(-3, 3), biased=st.booleans(), epsilon=st.sampled_from([1e-5, 1e-2]))
def test_layer_normalisation(batch: int, shape: list[int], axis: int, biased: bool, epsilon: float) -> None:
    rank = len(shape) + 1
    axis = max(1, min(axis, rank - 1)) if axis >= 0 else max(axis, 1 - rank)
    rng = np.random.default_rng(sum(shape))
    x, normed = drawn(rng, batch, *shape), (batch, *shape)[axis:]
    if np.prod(normed) < 2:
        return
    tensors = {"w": drawn(rng, *normed)} | ({"b": drawn(rng, *normed)} if biased else {})
    model = operator_model("LayerNormalization", x, tensors, axis=axis, epsilon=epsilon)

    def twin(image: Any, leaves: Any) -> Any:
        import torch

        return torch.nn.functional.layer_norm(image, normed, leaves["w"], leaves.get("b"), eps=epsilon)

    over = tuple(range(axis % rank, rank))
    assert_as_torch(model, twin, x, tensors, amplitude=amplitude(x, over, epsilon))


@oracle
@many
@given(batch=batches, channels=st.integers(1, 5), shape=sizes)
def test_instance_normalisation(batch: int, channels: int, shape: list[int]) -> None:
    if np.prod(shape) < 2:
        return
    rng = np.random.default_rng(sum(shape))
    x = drawn(rng, batch, channels, *shape)
    tensors = {"w": drawn(rng, channels), "b": drawn(rng, channels)}
    model = operator_model("InstanceNormalization", x, tensors, epsilon=1e-3)

    def twin(image: Any, leaves: Any) -> Any:
        import torch

        return torch.nn.functional.instance_norm(image, weight=leaves["w"], bias=leaves["b"], eps=1e-3)

    over = tuple(range(2, x.ndim))
    assert_as_torch(model, twin, x, tensors, amplitude=amplitude(x, over, 1e-3))


@oracle
@many
@given(batch=batches, groups=st.integers(1, 4), within=st.integers(1, 3), shape=sizes)
def test_group_normalisation(batch: int, groups: int, within: int, shape: list[int]) -> None:
    if within * np.prod(shape) < 2:
        return
    rng = np.random.default_rng(sum(shape))
    x = drawn(rng, batch, groups * within, *shape)
    tensors = {"w": drawn(rng, groups * within), "b": drawn(rng, groups * within)}
    model = operator_model("GroupNormalization", x, tensors, opset=21, num_groups=groups, epsilon=1e-3)

    def twin(image: Any, leaves: Any) -> Any:
        import torch

        return torch.nn.functional.group_norm(image, groups, leaves["w"], leaves["b"], eps=1e-3)

    grouped = x.reshape(batch, groups, -1)
    assert_as_torch(model, twin, x, tensors, amplitude=amplitude(grouped, (2,), 1e-3))


@oracle
@pytest.mark.parametrize("operator", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_values_far_from_zero_lose_no_more_than_torchs(operator: str) -> None:
    """Means a thousand times the deviation: one-pass variances would cancel."""
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(5, 4, 30)) + 1000).astype(np.float32)
    size = 30 if operator == "LayerNormalization" else 4
    tensors = {"w": drawn(rng, size), "b": drawn(rng, size)}
    attributes = {"num_groups": 2} if operator == "GroupNormalization" else {}
    graph = OperatorGraph(operator_model(operator, x, tensors, opset=21, **attributes), ["x", "w", "b"])
    upstream = rng.normal(size=x.shape).astype(np.float32)
    found = graph.run(x, upstream)
    axes = {"LayerNormalization": (2,), "InstanceNormalization": (2,), "GroupNormalization": None}[operator]
    wide = x.astype(np.float64)
    if axes is None:
        wide = wide.reshape(5, 2, -1)
        values = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
        values = values.reshape(x.shape)
    else:
        values = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    over = (0, 1) if operator == "LayerNormalization" else (0, 2)
    expected = (upstream * values).sum(over)
    np.testing.assert_allclose(found["w"], expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def test_another_precision_is_named() -> None:
    x, tensors = np.zeros((2, 4), np.float32), {"w": np.ones(4, np.float32)}
    model = operator_model("LayerNormalization", x, tensors, stash_type=onnx.TensorProto.BFLOAT16)
    with pytest.raises(DataError, match=r"node 'node' \(LayerNormalization\): attribute stash_type=16"):
        OperatorGraph(model, ["w"])
