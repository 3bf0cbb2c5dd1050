"""Pooling's gradients beside torch's: padded, overlapping, dilated, to the ceiling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from tests.bundles.gradients.operator_twins import OperatorGraph, assert_as_torch, operator_model

oracle = pytest.mark.oracle
batches = st.sampled_from([1, 5, 17])
many = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def axis(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """Size, kernel, stride, padding on both sides (torch: at most half a kernel), dilation."""
    kernel = draw(st.integers(1, 4))
    dilation = draw(st.sampled_from([1, 1, 2]))
    size = draw(st.integers((kernel - 1) * dilation + 1, 11))
    return size, kernel, draw(st.integers(1, 4)), draw(st.integers(0, kernel // 2)), dilation


axes_of = st.integers(1, 3).flatmap(lambda rank: st.tuples(*[axis()] * rank))


def attributes_of(axes: Sequence[tuple[int, ...]], ceil: int) -> dict[str, Any]:
    _, kernel, strides, padding, dilations = (list(values) for values in zip(*axes, strict=True))
    common = {"kernel_shape": kernel, "strides": strides, "pads": padding * 2, "ceil_mode": ceil}
    return common | ({"dilations": dilations} if max(dilations) > 1 else {})


def last_begins_in_padding(axes: Sequence[tuple[int, ...]]) -> bool:
    """Such a window does not exist, but onnx's shape inference counts it."""
    for size, kernel, stride, pad, dilation in axes:
        count = -(-(size + 2 * pad - (kernel - 1) * dilation - 1) // stride) + 1
        if count > 1 and (count - 1) * stride - pad >= size:
            return True
    return False


def image(batch: int, axes: Sequence[tuple[int, ...]], *, ties: bool) -> Any:
    """Whole numbers where equals shall be frequent."""
    rng = np.random.default_rng(sum(map(sum, axes)))
    shape = (batch, 2, *(size for size, *_ in axes))
    return (rng.integers(0, 3, shape) if ties else rng.normal(size=shape)).astype(np.float32)


@oracle
@many
@given(batch=batches, axes=axes_of, ceil=st.integers(0, 1), ties=st.booleans())
def test_max_pool(batch: int, axes: Sequence[tuple[int, ...]], ceil: int, ties: bool) -> None:
    assume(not (ceil and last_begins_in_padding(axes)))
    x = image(batch, axes, ties=ties)
    model = operator_model("MaxPool", x, {}, **attributes_of(axes, ceil))

    def twin(values: Any, leaves: Any) -> Any:
        import torch

        _, kernel, strides, padding, dilations = zip(*axes, strict=True)
        call = getattr(torch.nn.functional, f"max_pool{len(axes)}d")
        return call(values, kernel, strides, padding, dilations, bool(ceil))

    assert_as_torch(model, twin, x, {})


@oracle
@many
@given(batch=batches, axes=axes_of, ceil=st.integers(0, 1), counted=st.integers(0, 1))
def test_average_pool(batch: int, axes: Sequence[tuple[int, ...]], ceil: int, counted: int) -> None:
    axes = [(*values[:4], 1) for values in axes]
    assume(not (ceil and last_begins_in_padding(axes)))
    x = image(batch, axes, ties=False)
    model = operator_model("AveragePool", x, {}, count_include_pad=counted, **attributes_of(axes, ceil))

    def twin(values: Any, leaves: Any) -> Any:
        import torch

        _, kernel, strides, padding, _ = zip(*axes, strict=True)
        call = getattr(torch.nn.functional, f"avg_pool{len(axes)}d")
        return call(values, kernel, strides, padding, bool(ceil), bool(counted))

    assert_as_torch(model, twin, x, {})


@oracle
@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("batch", [1, 5, 17])
@pytest.mark.parametrize("ties", [False, True])
def test_global_pool(operator: str, batch: int, ties: bool) -> None:
    x = image(batch, [(4,), (3,)], ties=ties)
    model = operator_model(operator, x, {})

    def twin(values: Any, leaves: Any) -> Any:
        import torch

        kind = "avg" if operator == "GlobalAveragePool" else "max"
        return getattr(torch.nn.functional, f"adaptive_{kind}_pool2d")(values, 1)

    assert_as_torch(model, twin, x, {})


@pytest.mark.parametrize(
    ("attributes", "way"),
    [
        ({"kernel_shape": [2, 2], "strides": [2, 2]}, "GreaterOrEqual"),
        ({"kernel_shape": [2, 1], "strides": [2, 1]}, "GreaterOrEqual"),
        ({"kernel_shape": [2, 2], "strides": [3, 3]}, "MaxUnpool"),
        ({"kernel_shape": [3, 3], "strides": [3, 3]}, "MaxUnpool"),
        ({"kernel_shape": [3, 3], "strides": [2, 2]}, "ScatterElements"),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "dilations": [2, 2]}, "ScatterElements"),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}, "ScatterElements"),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, "ScatterElements"),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, "ScatterElements"),
    ],
)
def test_each_way_is_used_only_where_it_is_exact(attributes: dict[str, Any], way: str) -> None:
    """MaxUnpool fails in ceil mode at run time, and is silently wrong where windows overlap."""
    x = np.zeros((2, 2, 7, 7), np.float32)
    graph = OperatorGraph(operator_model("MaxPool", x, {}, **attributes), ["x"])
    used = {node.op_type for node in graph.nodes}
    assert used & {"GreaterOrEqual", "MaxUnpool", "ScatterElements"} == {way}


@oracle
@many
@given(
    batch=batches,
    sizes=st.lists(st.integers(2, 7), min_size=1, max_size=3),
    whole=st.integers(0, 7),
    ties=st.booleans(),
)
def test_max_pool_by_halves(batch: int, sizes: list[int], whole: int, ties: bool) -> None:
    kernel = tuple(1 if whole >> axis & 1 and len(sizes) > 1 else 2 for axis in range(len(sizes)))
    axes = [(size, taps, taps, 0, 1) for size, taps in zip(sizes, kernel, strict=True)]
    x = image(batch, axes, ties=ties)
    model = operator_model("MaxPool", x, {}, kernel_shape=kernel, strides=kernel)

    def twin(values: Any, leaves: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, f"max_pool{len(sizes)}d")(values, kernel, kernel)

    assert_as_torch(model, twin, x, {})


def test_storage_order_is_named() -> None:
    x = np.zeros((2, 2, 8), np.float32)
    model = operator_model("MaxPool", x, {}, kernel_shape=[2], storage_order=1, extra_outputs=1)
    with pytest.raises(DataError, match=r"node 'node' \(MaxPool\): attribute storage_order=1"):
        OperatorGraph(model, ["x"])


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_a_window_that_onnx_alone_counts_is_named(operator: str) -> None:
    x = np.zeros((2, 2, 8), np.float32)
    model = operator_model(operator, x, {}, kernel_shape=[3], strides=[3], pads=[1, 1], ceil_mode=1)
    with pytest.raises(DataError, match=r"node 'node' .*: attribute ceil_mode=1 .* \(export the model at opset 22"):
        OperatorGraph(model, ["x"])
