"""Convolution's gradients beside torch's, over shapes, strides, pads, dilations and groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.bundles.gradients.operator_twins import assert_products_as_torch, operator_model

pytestmark = pytest.mark.oracle


@dataclass(frozen=True)
class Geometry:
    """A convolution.

    Args:
        batch: samples.
        groups: of channels.
        inputs: channels of the input, a group.
        outputs: channels of the output, a group.
        axes: per spatial axis: size, kernel, stride, dilation, padding before and after.
    """

    batch: int
    groups: int
    inputs: int
    outputs: int
    axes: tuple[tuple[int, int, int, int, int, int], ...]
    biased: bool = True

    @property
    def pads(self) -> list[int]:
        return [axis[4] for axis in self.axes] + [axis[5] for axis in self.axes]


@st.composite
def axis(draw: st.DrawFn, size_max: int) -> tuple[int, int, int, int, int, int]:
    kernel, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    begin, end = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    span = (kernel - 1) * dilation + 1
    size = draw(st.integers(max(1, span - begin - end), max(size_max, span)))
    return size, kernel, stride, dilation, begin, end


@st.composite
def geometry(draw: st.DrawFn) -> Geometry:
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    axes = tuple(draw(axis({1: 24, 2: 12, 3: 5}[rank])) for _ in range(rank))
    depthwise_one = draw(st.booleans())
    channels = st.just(1) if depthwise_one else st.integers(1, 9)
    groups = draw(st.integers(1, 5))
    return Geometry(
        draw(st.sampled_from([1, 5, 17])), groups, draw(channels), draw(channels), axes, draw(st.booleans())
    )


def check(shape: Geometry, **attributes: Any) -> None:
    rng = np.random.default_rng(len(repr(shape)))
    sizes, kernel, strides, dilations, *_ = zip(*shape.axes, strict=True)
    x = rng.normal(size=(shape.batch, shape.groups * shape.inputs, *sizes)).astype(np.float32)
    tensors = {"w": rng.normal(size=(shape.groups * shape.outputs, shape.inputs, *kernel)).astype(np.float32)}
    if shape.biased:
        tensors["b"] = rng.normal(size=shape.groups * shape.outputs).astype(np.float32)
    attributes = attributes or {"pads": shape.pads}
    common: dict[str, Any] = {"strides": list(strides), "dilations": list(dilations), "group": shape.groups}
    model = operator_model("Conv", x, tensors, **common, **attributes)

    def twin(image: Any, leaves: Any) -> Any:
        import torch

        widths = [pad for *_, begin, end in reversed(shape.axes) for pad in (begin, end)]
        padded = torch.nn.functional.pad(image, widths)
        call = getattr(torch.nn.functional, f"conv{len(shape.axes)}d")
        return call(padded, leaves["w"], leaves.get("b"), stride=strides, dilation=dilations, groups=shape.groups)

    assert_products_as_torch(model, twin, x, tensors)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(geometry())
@example(Geometry(5, 1, 2, 3, ((1, 3, 2, 1, 3, 3), (4, 2, 1, 1, 0, 0))))
@example(Geometry(5, 3, 1, 1, ((2, 3, 1, 3, 3, 3), (9, 2, 1, 1, 0, 0))))
def test_gradients_are_torchs(shape: Geometry) -> None:
    check(shape)
