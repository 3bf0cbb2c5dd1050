"""Cases of activations, arithmetic, reductions, indexing, layout and products."""

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.bundles.gradients.cases import Case, ints, node
from tests.bundles.gradients.differences import Array


def number(value: float) -> Array:
    return np.array(value, dtype=np.float32)


def alone(operator: str, opset: int = 17, **attributes: Any) -> Case:
    shown = " ".join(f"{name}={value}" for name, value in attributes.items())
    return Case(f"{operator} {shown}", (4, 3), [node(operator, **attributes)], opset=opset)


def positive(name: str, *inputs: str, **frozen: Array) -> Case:
    """An operator on ``p``, which is above 0."""
    operator = name.split()[0]
    joined = " ".join(("p", *inputs))
    return Case(name, (4, 3), [node("Exp", "h", "p"), node(operator, joined)], frozen=frozen)


def reduced(operator: str, name: str, opset: int = 17, **attributes: Any) -> Case:
    return Case(f"{operator} {name}", (2, 3, 4), [node(operator, **attributes)], opset=opset)


def reduced_over(operator: str, axes: Array, **attributes: Any) -> Case:
    """Axes as an input: ReduceSum since opset 13, the others since 18."""
    case = f"{operator} over an input {axes.tolist()} {attributes}"
    nodes = [
        node(operator, "h axes", "r", **attributes),
        node("Mul", "r h" if attributes.get("keepdims", 1) else "r r"),
    ]
    return Case(case, (2, 3, 4), nodes, frozen={"axes": axes}, opset=18)


def sliced(name: str, starts: Array, ends: Array, axes: Array, steps: Array | None = None) -> Case:
    frozen = {"starts": starts, "ends": ends, "axes": axes} | ({} if steps is None else {"steps": steps})
    return Case(f"slice {name}", (5, 6), [node("Slice", " ".join(("h", *frozen)))], frozen=frozen)


def padded(mode: str, pads: Array, axes: Array | None = None) -> Case:
    given = {"pads": pads} | ({} if axes is None else {"axes": axes})
    inputs = "h pads" if axes is None else "h pads - axes"
    nodes = [node("Pad", inputs, "p", mode=mode), node("Mul", "p p")]
    return Case(f"pad {mode} {pads.tolist()}", (4, 5), nodes, frozen=given, opset=19)


ACTIVATIONS = [
    *(alone(name) for name in ("Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Selu")),
    *(alone(name) for name in ("Abs", "Cos", "Reciprocal", "Sin", "Softplus", "Softsign")),
    alone("LeakyRelu", alpha=0.3),
    alone("Elu", alpha=0.5),
    alone("Selu", alpha=1.5, gamma=0.7),
    alone("HardSigmoid", alpha=0.3, beta=0.4),
    alone("Gelu", opset=20),
    alone("Gelu", opset=20, approximate="tanh"),
    Case("clip", (4, 3), [node("Clip", "h low high")], frozen={"low": number(-0.4), "high": number(0.5)}),
    Case("clip from below", (4, 3), [node("Clip", "h low")], frozen={"low": number(-0.1)}),
    Case("clip from above", (4, 3), [node("Clip", "h - high")], frozen={"high": number(0.2)}),
    Case(
        "clip, bounds trained",
        (9,),
        [node("Exp", "w", "high"), node("Neg", "high", "low"), node("Clip", "h low high")],
        {"w": ()},
    ),
    Case("prelu, one slope", (4, 3), [node("PRelu", "h w")], {"w": (1,)}),
    Case("prelu, a slope a channel", (4, 3), [node("PRelu", "h w")], {"w": (4, 1)}),
]
ARITHMETIC = [
    positive("Log"),
    positive("Sqrt"),
    positive("Pow by a half", "half", half=number(0.5)),
    positive("Pow by 1.7", "power", power=number(1.7)),
    positive("Pow by several", "power", power=np.array([0, 1, -2.5], dtype="f4")),
    Case("pow by 2", (4, 3), [node("Pow", "h two")], frozen={"two": number(2)}),
    Case("pow by 3, whole", (4, 3), [node("Pow", "h three")], frozen={"three": np.array(3, dtype=np.int64)}),
    Case("pow by -1", (4, 3), [node("Pow", "h one")], frozen={"one": number(-1)}),
    Case("pow, exponent trained", (4, 3), [node("Exp", "h", "p"), node("Pow", "p w")], {"w": (3,)}),
    Case("div, both broadcast", (4, 1), [node("Exp", "w", "d"), node("Div", "h d")], {"w": (1, 3)}),
    Case("max", (4, 3), [node("Max", "h w")], {"w": (3,)}),
    Case("min", (4, 3), [node("Min", "w h")], {"w": (4, 1)}),
    Case("max of three", (4, 3), [node("Max", "h w v")], {"w": (3,), "v": (4, 3)}),
    Case("max of one", (4,), [node("Max")]),
    Case("sum of three", (4, 3), [node("Sum", "h w h")], {"w": (3,)}),
    Case("mean of two", (4, 3), [node("Mean", "h w")], {"w": (4, 1)}),
    Case(
        "where",
        (4, 3),
        [node("Greater", "h k", "c"), node("Where", "c h w")],
        {"w": (1, 3)},
        {"k": number(0.1)},
    ),
    Case("where the condition is larger", (1, 3), [node("Where", "c h w")], {"w": ()}, {"c": np.eye(3) > 0}),
    Case("cast to double and back", (3,), [node("Cast", "h", "d", to=TensorProto.DOUBLE), node("Cast", "d", to=1)]),
    Case("rounding stops", (3,), [node("Floor", "h", "f"), node("Add", "f h")]),
]
AXES: list[tuple[Array, dict[str, int]]] = [
    (ints(1), {}),
    (ints(-1, 2), {"keepdims": 1}),
    (ints(), {"noop_with_empty_axes": 1}),
]
REDUCED: dict[str, dict[str, Any]] = {
    "one axis": {"axes": [2]},
    "negative axes, dropped": {"axes": [-1, 1], "keepdims": 0},
    "axes out of order": {"axes": [3, 1]},
}
REDUCTIONS = [
    *(
        reduced(operator, name, **attributes)
        for operator in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
        for name, attributes in REDUCED.items()
    ),
    *(reduced(operator, "one axis", axes=[1]) for operator in ("ReduceL1", "ReduceSumSquare", "ReduceLogSumExp")),
    *(reduced(f"{operator}", "dropped", axes=[3, 2], keepdims=0) for operator in ("ReduceL1", "ReduceLogSumExp")),
    *(
        reduced_over(operator, axes, **attributes)
        for operator in ("ReduceSum", "ReduceMean", "ReduceMax")
        for axes, attributes in AXES
    ),
    reduced_over("ReduceMean", ints(0)),
    Case(
        "reduce the batch", (3,), [node("ReduceMean", "h", "m", axes=[0]), node("Sub", "h m", "c"), node("Tanh", "c")]
    ),
    Case("reduce all", (2, 3), [node("ReduceSum", "h", "s"), node("Mul", "s h")]),
    Case("reduce all, dropped", (2, 3), [node("ReduceMean", "h", "s", keepdims=0), node("Mul", "s h")]),
    *(
        Case(
            f"cumsum {reverse}{exclusive}",
            (4, 3),
            [node("CumSum", "h a", reverse=reverse, exclusive=exclusive)],
            frozen={"a": np.array(1, dtype=np.int64)},
        )
        for reverse in (0, 1)
        for exclusive in (0, 1)
    ),
]
PRODUCTS = [
    Case("matmul by a vector", (4, 5), [node("MatMul", "h w")], {"w": (5,)}),
    Case("matmul of a vector", (4, 5), [node("MatMul", "w h")], {"w": (4,)}),
    Case(
        "matmul of a vector by itself", (4,), [node("MatMul", "w v", "s"), node("Mul", "h s")], {"w": (4,), "v": (4,)}
    ),
    Case("matmul, leading axes broadcast both ways", (1, 3, 4), [node("MatMul", "h w")], {"w": (1, 2, 4, 3)}),
    Case("matmul of two activations", (2, 3, 3), [node("Tanh", "h", "t"), node("MatMul", "h t")]),
    Case(
        "gemm, a column offset",
        (4,),
        [node("Transpose", "h", "t"), node("Gemm", "v t b", "g"), node("Transpose", "g")],
        {"v": (2, 4), "b": (2, 1)},
    ),
    Case(
        "gemm of more rows than samples",
        (4, 3),
        [node("Reshape", "h pairs", "r"), node("Gemm", "r w b", "g"), node("Reshape", "g whole")],
        {"w": (2, 2), "b": (2,)},
        frozen={"pairs": ints(-1, 2), "whole": ints(-1, 4, 3)},
    ),
    Case("gemm, no offset", (4,), [node("Gemm", "h w", alpha=2.0)], {"w": (4, 3)}),
    Case("einsum matrix", (2, 4), [node("Einsum", "h w", equation="bij,jk->bik")], {"w": (4, 3)}),
    Case("einsum attention", (2, 3, 4), [node("Tanh", "h", "t"), node("Einsum", "h t", equation="bhqd,bhkd->bhqk")]),
    Case("einsum outer and summed", (2, 4), [node("Einsum", "h w", equation="bij,k->bik")], {"w": (3,)}),
    Case("einsum of one", (2, 4), [node("Einsum", "h", equation="bij->bj")]),
    Case("einsum of three", (2, 4), [node("Einsum", "h w v", equation="bij,jk,ik->bk")], {"w": (4, 3), "v": (2, 3)}),
]
TABLE: dict[str, tuple[int, ...]] = {"w": (6, 4)}
INDEXING = [
    Case("embedding", (2,), [node("Gather", "w i", "g"), node("MatMul", "h g")], {"w": (3, 3)}, {"i": ints(1, 1)}),
    Case(
        "embedding, indices repeat in a grid",
        (2, 4),
        [node("Gather", "w i", "g"), node("Mul", "h g")],
        TABLE,
        {"i": ints(1, 1).reshape(1, 2)},
    ),
    Case(
        "embedding, large",
        (2, 4),
        [node("Gather", "w i", "g"), node("Mul", "h g")],
        {"w": (300, 4)},
        {"i": ints(-1, 299).reshape(1, 2)},
    ),
    Case("gather one", (5, 3), [node("Gather", "h i", axis=1)], frozen={"i": np.array(0, dtype=np.int64)}),
    Case("gather the last", (5, 3), [node("Gather", "h i", axis=-1)], frozen={"i": np.array(-1, dtype=np.int64)}),
    Case("gather a block", (5, 3), [node("Gather", "h i", axis=1)], frozen={"i": ints(1, 2, 3)}),
    Case("gather shuffled", (5, 3), [node("Gather", "h i", axis=1)], frozen={"i": ints(4, 0, -2)}),
    Case(
        "gather all, shuffled in a grid",
        (4, 3),
        [node("Gather", "h i", axis=1)],
        frozen={"i": ints(3, 0, 2, 1).reshape(2, 2)},
    ),
    Case(
        "gather with repeats in the middle",
        (5, 3),
        [node("Gather", "h i", axis=1)],
        frozen={"i": ints(4, 0, 4, 4).reshape(2, 2)},
    ),
    Case(
        "gather elements",
        (5, 3),
        [
            node("Shape", "h", "n", start=0, end=1),
            node("Concat", "n s", "e", axis=0),
            node("Expand", "k e", "i"),
            node("GatherElements", "h i", axis=1),
        ],
        frozen={"k": np.tile(ints(4, 0, 4, -1).reshape(1, 4, 1), (1, 1, 3)), "s": ints(4, 3)},
    ),
    Case(
        "gather nd of slices",
        (2, 4),
        [node("GatherND", "w i", "g"), node("Mul", "h g")],
        {"w": (3, 2, 4)},
        {"i": ints(0, 1, -3, -1).reshape(1, 2, 2)},
    ),
    Case(
        "gather nd of elements",
        (2,),
        [node("GatherND", "w i", "g"), node("Mul", "h g")],
        {"w": (3, 2)},
        {"i": ints(0, 1, -3, -1).reshape(1, 2, 2)},
    ),
    sliced("a block", ints(1), ints(4), ints(1)),
    sliced("two axes", ints(1, -4), ints(2**31 - 1, -1), ints(1, 2)),
    sliced("steps", ints(0), ints(2**63 - 1), ints(2), ints(2)),
    sliced("backwards", ints(-1), ints(-(2**63)), ints(-1), ints(-1)),
    sliced("backwards in steps", ints(4), ints(0), ints(2), ints(-2)),
    sliced("everything", ints(0), ints(100), ints(1)),
    Case(
        "slice without axes", (5, 6), [node("Slice", "h s e")], frozen={"s": ints(0, 1, 2), "e": ints(2**31 - 1, 4, 9)}
    ),
    Case(
        "slice to a computed end",
        (5, 3),
        [node("Shape", "h", "n", start=2, end=3), node("Slice", "h s n a")],
        frozen={"s": ints(1), "a": ints(1)},
    ),
    Case(
        "slice of the batch",
        (3,),
        [node("Slice", "h s e a", "b"), node("ReduceSum", "b", "r"), node("Mul", "h r")],
        frozen={"s": ints(-2), "e": ints(9), "a": ints(0)},
    ),
]
LAYOUT = [
    Case("split evenly", (4, 3), [node("Split", "h", "a b", axis=1), node("Mul", "a b")]),
    Case(
        "split by sizes",
        (4, 3),
        [node("Split", "h s", "a b", axis=-2), node("Tanh", "a", "z")],
        frozen={"s": ints(3, 1)},
    ),
    Case("split in three, one unused", (6, 2), [node("Split", "h", "a b c", axis=1), node("Mul", "a c")]),
    Case(
        "split by number",
        (5, 2),
        [node("Split", "h", "a b", axis=1, num_outputs=2), node("Concat", "b a", axis=1)],
        opset=18,
    ),
    Case("concat on a negative axis", (2, 3), [node("Tanh", "h", "t"), node("Concat", "t h", axis=-1)]),
    Case(
        "concat of the batch",
        (3,),
        [node("Concat", "h w", "c", axis=0), node("ReduceMean", "c", "m", axes=[0]), node("Mul", "h m")],
        {"w": (2, 3)},
    ),
    Case("trilu", (4, 4), [node("Trilu", "h k", upper=0)], frozen={"k": np.array(1, dtype=np.int64)}),
    Case("depth to space", (8, 2, 3), [node("DepthToSpace", blocksize=2)]),
    Case("pixel shuffle", (8, 2, 3), [node("DepthToSpace", blocksize=2, mode="CRD")]),
    Case("space to depth", (2, 4, 6), [node("SpaceToDepth", blocksize=2)]),
    Case("expand", (1, 3), [node("Expand", "h s", "e"), node("Mul", "e w")], {"w": (2, 1)}, {"s": ints(1, 2, 3)}),
    Case(
        "expand a weight to the batch",
        (2, 3),
        [node("Shape", "h", "s"), node("Expand", "w s", "e"), node("Mul", "e h")],
        {"w": (1, 3)},
    ),
    Case("tile", (2, 3), [node("Tile", "h r", "t"), node("Mul", "t t")], frozen={"r": ints(1, 3, 2)}),
    padded("constant", ints(0, 1, 2, 0, 0, 1)),
    padded("constant", ints(1, 0), ints(2)),
    padded("reflect", ints(0, 2, 3, 0, 1, 4)),
    padded("edge", ints(0, 2, 1, 0, 0, 3)),
    padded("edge", ints(2, 0), ints(-1)),
    padded("wrap", ints(0, 1, 4, 0, 0, 2)),
    padded("wrap", ints(0, 5), ints(-1)),
    Case("squeeze by no axes", (1, 3), [node("Squeeze", "h", "q"), node("Tanh", "q")]),
]


def resized(name: str, shape: tuple[int, ...], how: Array, opset: int = 17, **attributes: Any) -> Case:
    return Case(f"resize {name}", shape, [node("Resize", "h - how", **attributes)], frozen={"how": how}, opset=opset)


ASYMMETRIC: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
RESAMPLING = [
    resized("nearest by two", (2, 3, 4), np.array([1, 1, 2, 2], dtype="f4"), mode="nearest", **ASYMMETRIC),
    resized("nearest by a fraction", (2, 5), np.array([1, 1, 1.7], dtype="f4"), mode="nearest"),
    resized("nearest down", (2, 7), np.array([1, 1, 0.5], dtype="f4"), mode="nearest"),
    resized("linear by two", (2, 3, 4), np.array([1, 1, 2, 2], dtype="f4"), mode="linear"),
    Case(
        "resize to computed sizes, linear with corners",
        (2, 3, 4),
        [
            node("Shape", "h", "n", start=0, end=1),
            node("Concat", "n rest", "how", axis=0),
            node("Resize", "h - - how", mode="linear", coordinate_transformation_mode="align_corners"),
        ],
        frozen={"rest": ints(2, 5, 7)},
    ),
    resized("cubic", (2, 4, 5), np.array([1, 1, 2, 1.6], dtype="f4"), mode="cubic"),
    resized("linear on named axes", (2, 4, 5), np.array([2, 1.5], dtype="f4"), mode="linear", axes=[3, 2], opset=18),
]
TENSOR_CASES = [*RESAMPLING, *ACTIVATIONS, *ARITHMETIC, *REDUCTIONS, *PRODUCTS, *INDEXING, *LAYOUT]
