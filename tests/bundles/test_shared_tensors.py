"""Tensors that an exporter wrote several times."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model, trainable_names
from tests.bundles.gradients.cases import node
from tests.bundles.gradients.differences import Array, gradients_of
from tests.bundles.nets import drawn, model_of

W = drawn(np.random.default_rng(1), w=(4, 4))["w"]
TWICE = [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("MatMul", "t v", "y")]


def twice(v: Array, nodes: list[onnx.NodeProto] = TWICE, **further: Array) -> onnx.ModelProto:
    return model_of(nodes, {"w": W, "v": v, **further}, shape=[4], output=[4])


@pytest.mark.oracle
@pytest.mark.parametrize(("v", "operators"), [(W, {"MatMul", "Tanh"}), (W.T, {"MatMul", "Tanh", "Transpose"})])
def test_copy_is_the_tensor_itself_and_gets_both_gradients(v: Array, operators: set[str]) -> None:
    import torch

    model = checked_model(twice(v))
    assert trainable_names(model, ["*"]) == ["w"]
    assert {made.op_type for made in model.graph.node} == operators
    rng = np.random.default_rng(2)
    x, labels = rng.normal(size=(5, 4)).astype("f4"), rng.integers(0, 4, 5)
    _, found = gradients_of(model, ["w"], "cross-entropy", x, labels)
    w: Any = torch.tensor(W).requires_grad_()
    logits = torch.tanh(torch.tensor(x) @ w) @ (w if v is W else w.T)
    loss: Any = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    loss.backward()
    np.testing.assert_allclose(found["w"], w.grad, rtol=0, atol=2e-6)


def test_folded_copy_that_is_an_identity_of_the_other_is_joined() -> None:
    nodes = [node("Identity", "w", "onnx::MatMul_7"), *TWICE[:2], node("MatMul", "t onnx::MatMul_7", "y")]
    model = checked_model(model_of(nodes, {"w": W}, shape=[4], output=[4]))
    assert trainable_names(model, ["*"]) == ["w"]


def test_copy_that_a_branch_reads_is_joined() -> None:
    value = helper.make_tensor_value_info("b", 1, None)
    branches = [helper.make_graph([node("MatMul", f"t {name}", "b")], name, [], [value]) for name in ("v", "w")]
    nodes = [
        node("MatMul", "x w", "h"),
        node("Tanh", "h", "t"),
        node("If", "c", "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    model = twice(W, nodes, c=np.array(True))
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("f4")
    joined = checked_model(model)
    assert [tensor.name for tensor in joined.graph.initializer] == ["w", "c"]
    one, other = (Session("test", m.SerializeToString(), {}, threads=1).run({"x": x})["y"] for m in (model, joined))
    np.testing.assert_array_equal(one, other)


def test_what_was_never_trained_is_not_taken_for_a_copy() -> None:
    """Cloned layers of a fresh net are equal, which shows where torch wrote one of their biases as an Identity."""
    bias = drawn(np.random.default_rng(3), b=(1, 4))["b"][0]
    nodes = [
        node("MatMul", "x w", "h"),
        node("Add", "h b", "t"),
        node("Identity", "b", "b2"),
        node("MatMul", "t v", "u"),
        node("Add", "u b2", "y"),
    ]
    model = checked_model(twice(W, nodes, b=bias))
    assert sorted(trainable_names(model, ["*"])) == ["b", "b2", "v", "w"]


@pytest.mark.parametrize("number", [0.0, 1.0, 0.25, 0.01])
def test_equal_numbers_that_people_begin_with_are_no_copies(number: float) -> None:
    nodes = [*TWICE[:2], node("Add", "t a", "u"), node("MatMul", "u v", "z"), node("Add", "z b", "y")]
    value = np.full(4, number, dtype="f4")
    model = checked_model(twice(2 * W, nodes, a=value, b=value.copy()))
    assert trainable_names(model, ["*"]) == ["w", "v", "a", "b"]


def test_trained_number_that_is_written_twice_is_one() -> None:
    nodes = [*TWICE[:2], node("PRelu", "t a", "u"), node("MatMul", "u v", "z"), node("PRelu", "z b", "y")]
    value = np.array([0.2371451], dtype="f4")
    model = checked_model(twice(2 * W, nodes, a=value, b=value.copy()))
    assert trainable_names(model, ["*"]) == ["w", "v", "a"]
