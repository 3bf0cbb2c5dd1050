"""Sums of gradients, at one, two and four threads: exact, and the same bits every time.

FIELD: ScatterND's add races on repeated indices with more than one thread, where its result is off by a third.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from server_bridge.bundles.checks import checked_model
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array, Stepper
from tests.bundles.nets import drawn, model_of

REPEATS = 20
ROWS, LENGTH, WIDTH = 64, 48, 32


@dataclass(frozen=True)
class Sum:
    """Nodes from ``h`` (n, LENGTH, WIDTH) to ``z``, under a mean and a dense head.

    Args:
        nodes: what is to repeat.
        tensors: trained ones.
        frozen: others.
    """

    nodes: list[onnx.NodeProto]
    tensors: dict[str, tuple[int, ...]]
    frozen: dict[str, Array]


POINTS = np.random.default_rng(5).integers(0, 7, (1, LENGTH, WIDTH))
SUMS = {
    "gather with repeats": Sum([node("Gather", "h i", axis=1)], {}, {"i": ints(*([3, 3, 3, 5] * 40))}),
    "gather elements": Sum(
        [
            node("Shape", "h", "n", start=0, end=1),
            node("Concat", "n s", "e", axis=0),
            node("Expand", "i e", "j"),
            node("GatherElements", "h j", axis=1),
        ],
        {},
        {"i": POINTS, "s": ints(LENGTH, WIDTH)},
    ),
    "gather nd": Sum(
        [node("GatherND", "w i", "g"), node("Add", "h g")],
        {"w": (5, 7, WIDTH)},
        {"i": np.random.default_rng(6).integers(0, 5, (LENGTH, 2))},
    ),
    "counted slice": Sum(
        [
            node("ReduceMin", "h", "q", keepdims=0),
            node("Mul", "q nothing", "r"),
            node("Cast", "r", "c", to=TensorProto.INT64),
            node("Reshape", "c a", "s"),
            node("Slice", "h s e a k"),
        ],
        {},
        {"nothing": np.array(0, dtype="f4"), "e": ints(LENGTH), "a": ints(1), "k": ints(3)},
    ),
    "broadcast weights": Sum([node("Mul", "h v", "p"), node("Add", "p w")], {"v": (WIDTH,), "w": (LENGTH, 1)}, {}),
    "shared matrix": Sum([node("MatMul", "h w")], {"w": (WIDTH, WIDTH)}, {}),
    "reductions": Sum(
        [
            node("ReduceMax", "h", "m", axes=[1]),
            node("ReduceMean", "h", "a", axes=[2]),
            node("ReduceL2", "h", "l", axes=[0]),
            node("Sum", "m a l h"),
        ],
        {},
        {},
    ),
    "tile": Sum([node("Tile", "h r")], {}, {"r": ints(1, 3, 2)}),
    "border that repeats": Sum([node("Pad", "h p", mode="edge")], {}, {"p": ints(0, 20, 9, 0, 30, 9)}),
}


def model_with(total: Sum) -> tuple[onnx.ModelProto, list[str]]:
    rng = np.random.default_rng(0)
    weights = {"scale": rng.normal(size=(LENGTH, WIDTH)).astype("f4")}
    weights |= {name: rng.normal(size=shape).astype("f4") for name, shape in total.tensors.items()}
    nodes = [node("Mul", "x scale", "h"), *total.nodes, node("Tanh", "z", "t"), node("ReduceMean", "t", "y", axes=[1])]
    nodes[-1].attribute.append(helper.make_attribute("keepdims", 0))
    model = model_of(nodes, weights | total.frozen, shape=[LENGTH, WIDTH], output=None)
    width = 2 * WIDTH if total is SUMS["tile"] else WIDTH + 18 if total is SUMS["border that repeats"] else WIDTH
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", width]))
    return checked_model(model), list(weights)


def embedding(rows: int) -> onnx.ModelProto:
    weights = drawn(np.random.default_rng(1), table=(rows, WIDTH), h_w=(WIDTH, 4))
    nodes = [
        node("Gather", "table x", "e"),
        node("ReduceMean", "e", "m", axes=[1], keepdims=0),
        node("MatMul", "m h.w", "y"),
    ]
    return model_of(nodes, weights, shape=[LENGTH], output=[4], input_type=TensorProto.INT64)


def assert_repeats(
    model: onnx.ModelProto, trainable: list[str], x: Array, labels: Array, threads: int
) -> dict[str, Any]:
    """The gradients, after as many runs in two sessions."""
    seen: Counter[bytes] = Counter()
    gradients: dict[str, Array] = {}
    for _ in range(2):
        stepper = Stepper(model, trainable, "cross-entropy", threads=threads)
        for _ in range(REPEATS // 2):
            gradients = stepper.gradients(x, labels)[1]
            seen[b"".join(gradients[name].tobytes() for name in trainable)] += 1
    assert len(seen) == 1
    return gradients


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", SUMS)
def test_sum_repeats_bit_for_bit(name: str, threads: int) -> None:
    model, trainable = model_with(SUMS[name])
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, LENGTH, WIDTH)).astype(np.float32)
    assert_repeats(model, trainable, x, rng.integers(0, WIDTH, ROWS), threads)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("rows", [WIDTH // 2, WIDTH, WIDTH + 1, 3000])
def test_table_is_exact_and_repeats_where_tokens_do(rows: int, threads: int) -> None:
    """Nearly all tokens are the same few; the expected gradient is added up in float64."""
    model = embedding(rows)
    rng = np.random.default_rng(rows)
    x = rng.choice(ints(0, 1, rows // 2, rows - 1), (ROWS, LENGTH)).astype(np.int64)
    labels = rng.integers(0, 4, ROWS)
    found = assert_repeats(model, ["table", "h.w"], x, labels, threads)["table"]
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor).astype("f8") for tensor in model.graph.initializer}
    logits = weights["table"][x].mean(axis=1) @ weights["h.w"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    upstream = (powers / powers.sum(axis=1, keepdims=True) - np.eye(4)[labels]) / ROWS @ weights["h.w"].T / LENGTH
    expected = np.zeros_like(weights["table"])
    np.add.at(expected, x, upstream[:, None, :])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    operators = {made.op_type for made in Stepper(model, ["table"], "cross-entropy").model.graph.node}
    assert ("ScatterElements" in operators) == (rows > WIDTH)
    assert "ScatterND" not in operators


def test_index_below_zero_counts_from_the_end() -> None:
    model = embedding(9)
    x = np.array([[-1] * LENGTH, [8] * LENGTH], dtype=np.int64)
    gradients = Stepper(model, ["table"], "cross-entropy").gradients(x, np.array([0, 1]))[1]["table"]
    assert np.abs(gradients[8]).max() > 0
    assert not gradients[:8].any()
