"""Transposed convolution's gradients beside torch's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from tests.bundles.gradients.operator_twins import Array, OperatorGraph, assert_products_as_torch, operator_model

oracle = pytest.mark.oracle
Axis = tuple[int, int, int, int, int, int]


@st.composite
def axis(draw: st.DrawFn) -> Axis:
    """Size, kernel, stride, dilation, padding on both sides, output padding."""
    kernel, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    pad = draw(st.integers(0, (kernel - 1) * dilation))
    return draw(st.integers(1, 7)), kernel, stride, dilation, pad, draw(st.integers(0, stride - 1))


def length(values: Axis) -> int:
    size, kernel, stride, dilation, pad, extra = values
    return (size - 1) * stride + (kernel - 1) * dilation + 1 + extra - 2 * pad


def arrays(batch: int, groups: int, inputs: int, outputs: int, axes: Sequence[Axis]) -> tuple[Array, dict[str, Array]]:
    rng = np.random.default_rng(sum(map(sum, axes)))
    sizes, kernel = [a[0] for a in axes], [a[1] for a in axes]
    x = rng.normal(size=(batch, groups * inputs, *sizes)).astype(np.float32)
    weight = rng.normal(size=(groups * inputs, outputs, *kernel)).astype(np.float32)
    return x, {"w": weight, "b": rng.normal(size=groups * outputs).astype(np.float32)}


def check(batch: int, groups: int, inputs: int, outputs: int, axes: Sequence[Axis], **given_pads: Any) -> None:
    x, tensors = arrays(batch, groups, inputs, outputs, axes)
    _, _, strides, dilations, pads, extra = zip(*axes, strict=True)
    common = {"strides": list(strides), "dilations": list(dilations), "output_padding": list(extra)}
    attributes: dict[str, Any] = {**common, **(given_pads or {"pads": [*pads, *pads]}), "group": groups}
    model = operator_model("ConvTranspose", x, tensors, **attributes)

    def twin(image: Any, leaves: Any) -> Any:
        import torch

        call = getattr(torch.nn.functional, f"conv_transpose{len(axes)}d")
        return call(image, leaves["w"], leaves["b"], strides, pads, extra, groups, dilations)

    assert_products_as_torch(model, twin, x, tensors)


@oracle
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batch=st.sampled_from([1, 5, 17]),
    groups=st.integers(1, 3),
    inputs=st.integers(1, 4),
    outputs=st.integers(1, 4),
    axes=st.sampled_from([1, 2, 2, 3]).flatmap(lambda rank: st.tuples(*[axis()] * rank)),
)
def test_gradients_are_torchs(batch: int, groups: int, inputs: int, outputs: int, axes: Sequence[Axis]) -> None:
    assume(all(length(values) >= 1 for values in axes))
    check(batch, groups, inputs, outputs, axes)


@oracle
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding_is_as_the_operators_own(mode: str) -> None:
    """Torch pads both sides alike: an odd kernel with stride 1."""
    pad = 0 if mode == "VALID" else 1
    check(5, 1, 2, 3, [(5, 3, 1, 1, pad, 0), (4, 3, 1, 1, pad, 0)], auto_pad=mode)


@oracle
def test_output_shape_gives_the_padding() -> None:
    check(5, 1, 2, 3, [(5, 4, 2, 1, 1, 0), (4, 4, 2, 1, 1, 0)], output_shape=[10, 8])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "NOTSET"])
def test_odd_padding_lies_on_the_side_that_onnxruntime_puts_it(mode: str) -> None:
    """Three taps with stride 2 and twice the size: one position of padding. <y, dy> = <x, dx> without a bias."""
    x, tensors = arrays(3, 1, 2, 2, [(5, 3, 2, 1, 0, 0)])
    attributes: dict[str, Any] = {"output_shape": [10]} if mode == "NOTSET" else {"auto_pad": mode}
    model = operator_model("ConvTranspose", x, {"w": tensors["w"]}, strides=[2], **attributes)
    graph = OperatorGraph(model, ["x", "w"])
    upstream = np.random.default_rng(2).normal(size=(3, 2, 10)).astype(np.float32)
    found = graph.run(x, upstream)
    whole = float((found["y"].astype("f8") * upstream).sum())
    assert float((found["x"].astype("f8") * x).sum()) == pytest.approx(whole, rel=1e-5)
    assert float((found["w"].astype("f8") * tensors["w"]).sum()) == pytest.approx(whole, rel=1e-5)


def test_output_beyond_the_windows_is_named() -> None:
    x, tensors = arrays(2, 1, 2, 2, [(5, 3, 2, 1, 0, 0)])
    model = operator_model("ConvTranspose", x, tensors, strides=[2], output_shape=[12])
    with pytest.raises(DataError, match=r"node 'node' \(ConvTranspose\): attribute output_shape=\[12\]"):
        OperatorGraph(model, ["w"])
