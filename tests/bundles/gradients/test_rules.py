"""Every rule against float64 central differences, and repeatable at one, two and four threads."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from server_bridge.bundles.gradients.rules import RULES
from tests.bundles.gradients.cases import Case, assembled, ints, node
from tests.bundles.gradients.differences import Stepper, check_gradients
from tests.bundles.gradients.spatial_cases import SPATIAL_CASES
from tests.bundles.gradients.tensor_cases import TENSOR_CASES

REPEATS = 20


def conv(name: str, shape: tuple[int, ...], weight: tuple[int, ...], **attributes: Any) -> Case:
    return Case(f"conv {name}", shape, [node("Conv", "h w b", **attributes)], {"w": weight, "b": weight[:1]})


def pool(operator: str, name: str, shape: tuple[int, ...], **attributes: Any) -> Case:
    return Case(f"{operator} {name}", shape, [node(operator, **attributes)])


POSITIVE = np.random.default_rng(8).uniform(0.5, 2, 4).astype("f4")
CASES = [
    Case("add", (2, 3), [node("Add", "h w")], {"w": (2, 3)}),
    Case("add broadcasting w", (2, 3), [node("Add", "h w")], {"w": (3,)}),
    Case("add broadcasting both", (2, 1), [node("Add", "h w")], {"w": (1, 3)}),
    Case(
        "add broadcasting h to a higher rank",
        (3,),
        [node("Add", "w h", "a"), node("Transpose", "a", perm=[1, 0, 2])],
        {"w": (2, 1, 3)},
    ),
    Case("sub", (2, 3), [node("Sub", "h w")], {"w": (2, 1)}),
    Case("sub reversed", (2, 3), [node("Sub", "w h")], {"w": (3,)}),
    Case("mul", (2, 3), [node("Mul", "h w")], {"w": (1, 2, 3)}),
    Case("mul by a scalar", (2, 3), [node("Mul", "w h")], {"w": ()}),
    Case("mul by itself", (2, 3), [node("Mul", "h h")]),
    Case("div", (2, 3), [node("Sigmoid", "w", "d"), node("Div", "h d")], {"w": (3,)}),
    Case("neg", (4,), [node("Neg")]),
    Case("relu", (2, 3), [node("Relu")]),
    Case("tanh", (2, 3), [node("Tanh")]),
    Case("sigmoid", (2, 3), [node("Sigmoid")]),
    Case("identity", (3,), [node("Identity")]),
    Case("dropout when serving", (5,), [node("Dropout")]),
    Case("softmax", (2, 5), [node("Softmax", axis=-1)]),
    Case("softmax over a middle axis", (4, 3), [node("Softmax", axis=1)]),
    Case("log-softmax", (2, 5), [node("LogSoftmax", axis=2)]),
    Case("gemm", (4,), [node("Gemm", "h w b")], {"w": (4, 3), "b": (3,)}),
    Case("gemm turned", (4,), [node("Gemm", "h w b", transB=1, alpha=0.5, beta=2.0)], {"w": (3, 4), "b": (1, 3)}),
    Case("gemm, scalar offset", (4,), [node("Gemm", "h w b", "g"), node("Tanh", "g")], {"w": (4, 3), "b": ()}),
    Case(
        "gemm of a turned left operand",
        (4,),
        [node("Transpose", "h", "t", perm=[1, 0]), node("Gemm", "t w", transA=1)],
        {"w": (4, 3)},
    ),
    Case(
        "gemm, both turned",
        (4,),
        [node("Transpose", "h", "t", perm=[1, 0]), node("Gemm", "t w", transA=1, transB=1, alpha=2.0)],
        {"w": (3, 4)},
    ),
    Case("matmul", (4,), [node("MatMul", "h w")], {"w": (4, 3)}),
    Case("matmul on a sequence", (2, 4), [node("MatMul", "h w")], {"w": (4, 3)}),
    Case("matmul, trained left", (4, 2), [node("MatMul", "w h")], {"w": (3, 4)}),
    Case("matmul, batches broadcast", (1, 3, 4), [node("MatMul", "h w")], {"w": (2, 4, 3)}),
    conv("1d", (2, 9), (3, 2, 4)),
    conv("1d strided", (2, 10), (3, 2, 4), strides=[3]),
    conv("1d padded unevenly", (2, 9), (3, 2, 3), pads=[2, 1], strides=[2]),
    conv("1d dilated", (2, 11), (3, 2, 3), dilations=[3], pads=[1, 2]),
    conv("1d grouped", (4, 9), (6, 2, 3), group=2),
    conv("1d of one tap", (3, 5), (4, 3, 1)),
    conv("1d with few positions", (6, 4), (8, 6, 3)),
    conv("1d same, upper", (2, 10), (3, 2, 4), auto_pad="SAME_UPPER", strides=[3]),
    conv("1d same, lower", (2, 10), (3, 2, 4), auto_pad="SAME_LOWER"),
    conv("1d valid", (2, 10), (3, 2, 4), auto_pad="VALID"),
    conv("2d", (2, 6, 5), (3, 2, 3, 2)),
    conv("2d strided and padded", (2, 7, 6), (3, 2, 3, 3), strides=[2, 3], pads=[1, 0, 1, 2]),
    conv("2d dilated", (2, 7, 7), (2, 2, 2, 3), dilations=[2, 2]),
    conv("2d depthwise", (3, 5, 5), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]),
    conv("2d with few positions, grouped", (8, 2, 2), (8, 4, 2, 2), group=2),
    Case("conv 1d without bias", (2, 9), [node("Conv", "h w")], {"w": (3, 2, 4)}),
    pool("MaxPool", "apart", (2, 8), kernel_shape=[2], strides=[2]),
    pool("MaxPool", "apart with a rest", (2, 9), kernel_shape=[2], strides=[2]),
    pool("MaxPool", "with gaps", (2, 9), kernel_shape=[2], strides=[3]),
    pool("MaxPool", "overlapping", (2, 9), kernel_shape=[3], strides=[2]),
    pool("MaxPool", "to the ceiling", (2, 9), kernel_shape=[2], strides=[2], ceil_mode=1),
    pool("MaxPool", "padded", (2, 8), kernel_shape=[2], strides=[2], pads=[1, 1]),
    pool("MaxPool", "2d apart", (2, 6, 4), kernel_shape=[2, 2], strides=[2, 2]),
    pool("MaxPool", "2d apart with a rest", (2, 7, 5), kernel_shape=[2, 2], strides=[2, 2]),
    pool("MaxPool", "2d overlapping and padded", (2, 6, 5), kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1]),
    pool("MaxPool", "2d same", (2, 7, 5), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    pool("AveragePool", "apart", (2, 8), kernel_shape=[2], strides=[2]),
    pool("AveragePool", "with a rest", (2, 9), kernel_shape=[2], strides=[2]),
    pool("AveragePool", "overlapping", (2, 9), kernel_shape=[3], strides=[1]),
    pool("AveragePool", "padded", (2, 8), kernel_shape=[3], strides=[2], pads=[1, 1]),
    pool("AveragePool", "padding counted", (2, 8), kernel_shape=[3], strides=[2], pads=[1, 1], count_include_pad=1),
    pool("AveragePool", "2d", (2, 6, 5), kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 0]),
    pool("GlobalAveragePool", "1d", (3, 5)),
    pool("GlobalAveragePool", "2d", (3, 4, 2)),
    Case("flatten", (2, 3, 2), [node("Flatten", axis=1)]),
    Case("reshape", (2, 6), [node("Reshape", "h size")], frozen={"size": ints(0, 3, -1)}),
    Case("transpose", (2, 3), [node("Transpose", perm=[0, 2, 1])]),
    Case("transpose of four", (2, 3, 4), [node("Transpose", perm=[0, 2, 3, 1])]),
    Case("unsqueeze", (3,), [node("Unsqueeze", "h axes")], frozen={"axes": ints(1)}),
    Case("squeeze", (3, 1), [node("Squeeze", "h axes")], frozen={"axes": ints(2)}),
    Case("concat", (2, 3), [node("Tanh", "h", "t"), node("Concat", "h t h", axis=2)]),
    Case(
        "batch normalisation",
        (4, 5),
        [node("BatchNormalization", "h w b mean var", epsilon=1e-2)],
        {"w": (4,), "b": (4,)},
        {"mean": POSITIVE, "var": POSITIVE},
    ),
    Case(
        "batch normalisation of vectors",
        (4,),
        [node("BatchNormalization", "h w b mean var")],
        {"w": (4,), "b": (4,)},
        {"mean": POSITIVE, "var": POSITIVE},
    ),
    Case(
        "shared tensor", (3,), [node("Gemm", "h w", "g"), node("Tanh", "g", "t"), node("MatMul", "t w")], {"w": (3, 3)}
    ),
    Case("value used twice", (3,), [node("Tanh", "h", "t"), node("Mul", "t w", "m"), node("Add", "m t")], {"w": (3,)}),
    Case(
        "constant node",
        (3,),
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([2.0, 3, 4], dtype="f4"))),
            node("Mul", "h k"),
        ],
    ),
    *SPATIAL_CASES,
    *TENSOR_CASES,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule_agrees_with_central_differences(case: Case) -> None:
    model, trainable, x, labels = assembled(case)
    check_gradients(model, trainable, "cross-entropy", x, labels)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule_repeats_bit_for_bit_at_one_two_and_four_threads(case: Case) -> None:
    """The same samples fifty times over, so that whatever adds up does so over repeats."""
    model, trainable, x, labels = assembled(case)
    big = np.concatenate([x] * 50)
    many = np.concatenate([labels] * 50)
    first = Stepper(model, trainable, "cross-entropy")
    for stepper in (first, first.at(2), first.at(4)):
        seen = set()
        for _ in range(REPEATS):
            gradients = stepper.gradients(big, many)[1]
            seen.add(b"".join(gradients[name].tobytes() for name in trainable))
        assert len(seen) == 1


def test_every_rule_has_a_case() -> None:
    covered = {drawn.op_type for case in CASES for drawn in case.nodes}
    assert set(RULES) - covered == set()
