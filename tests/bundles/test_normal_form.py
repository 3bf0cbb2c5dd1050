"""Exporters' ways of writing the same model, made one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model, trainable_names
from tests.bundles.gradients.cases import node
from tests.bundles.gradients.differences import Array, gradients_of
from tests.bundles.nets import classified, drawn, initialisers, mlp, model_of


def run(model: onnx.ModelProto, x: Array) -> Array:
    name = model.graph.output[0].name
    return Session("test", model.SerializeToString(), {}, threads=1).run({model.graph.input[0].name: x})[name]


def with_constant_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every initialiser as a Constant node."""
    nodes = [
        helper.make_node("Constant", [], [tensor.name], value=tensor, name=f"node of {tensor.name}")
        for tensor in model.graph.initializer
    ]
    nodes += list(model.graph.node)
    graph = helper.make_graph(nodes, "net", list(model.graph.input), list(model.graph.output))
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=9)


def test_weights_in_constant_nodes_are_found_and_trained() -> None:
    plain, written = checked_model(mlp()), checked_model(with_constant_nodes(mlp()))
    assert trainable_names(written, ["*"]) == trainable_names(plain, ["*"])
    data = classified(mlp(), 9)
    names = trainable_names(plain, ["*"])
    one, other = (gradients_of(m, names, "cross-entropy", data["x"], data["label"])[1] for m in (plain, written))
    for name in names:
        assert one[name].tobytes() == other[name].tobytes()


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("value_float", 2.5, np.array(2.5, dtype="f4")),
        ("value_floats", [1.0, 2.0], np.array([1, 2], dtype="f4")),
        ("value_int", 3, np.array(3)),
        ("value_ints", [3, 4], np.array([3, 4])),
    ],
)
def test_constants_of_every_kind_become_initialisers(attribute: str, value: object, expected: Array) -> None:
    kind = TensorProto.FLOAT if expected.dtype == np.float32 else TensorProto.INT64
    constant = node("Constant", "", "k")
    constant.attribute.append(helper.make_attribute(attribute, value))
    nodes = [
        constant,
        node("Cast", "k", "f", to=kind),
        node("Cast", "f", "g", to=TensorProto.FLOAT),
        node("Mul", "x g", "y"),
    ]
    model = checked_model(model_of(nodes, {}, shape=[2], output=[2]))
    found = initialisers(model)["k"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_constant_of_strings_stays_where_it_is() -> None:
    """It is not a tensor that a graph computes with, and is dropped where nothing reads it."""
    text = helper.make_node("Constant", [], ["s"], value_string=b"note")
    model = checked_model(model_of([text, node("Identity", "x", "y")], {}, shape=[2], output=[2]))
    assert [made.op_type for made in model.graph.node] == ["Identity"]


def test_dropout_of_a_model_in_training_mode_drops_nothing() -> None:
    weights = drawn(np.random.default_rng(0), a_w=(6, 3)) | {
        "ratio": np.array(0.5, dtype="f4"),
        "training": np.array(True),
    }
    nodes = [node("Dropout", "x ratio training", "d mask"), node("MatMul", "d a.w", "y")]
    model = checked_model(model_of(nodes, weights, shape=[6], output=[3]))
    x = np.ones((4, 6), dtype=np.float32)
    np.testing.assert_allclose(run(model, x), x @ weights["a.w"], rtol=1e-6)
    found = gradients_of(model, ["a.w"], "cross-entropy", x, np.array([0, 1, 2, 0]))[1]["a.w"]
    assert (found == found[:1]).all()
    assert trainable_names(model, ["*"]) == ["a.w"]


def test_model_of_labels_alone_is_refused_by_name() -> None:
    nodes = [node("ArgMax", "x", "winner", axis=1, keepdims=0)]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("winner", TensorProto.INT64, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(DataError, match=r"no output is a tensor of floats \(there are: winner\).*make the logits"):
        checked_model(model)


def of_two(*, swapped: bool = False) -> onnx.ModelProto:
    """Probabilities of two classes; swapped, they are not in the order that is known."""
    weights = drawn(np.random.default_rng(0), a_w=(5, 1)) | {"one": np.array(1, dtype="f4")}
    pair = "p q" if swapped else "q p"
    nodes = [
        node("MatMul", "x a.w", "m"),
        node("Sigmoid", "m", "p"),
        node("Sub", "one p", "q"),
        node("Concat", pair, "y", axis=1),
    ]
    return model_of(nodes, weights, shape=[5], output=[2])


def test_two_probabilities_become_logits() -> None:
    x = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    logits = run(checked_model(of_two()), x)
    assert not logits[:, 0].any()
    np.testing.assert_allclose(1 / (1 + np.exp(-logits[:, 1])), run(of_two(), x)[:, 1], rtol=1e-5)


def test_pair_in_another_order_is_left_alone() -> None:
    x = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(checked_model(of_two(swapped=True)), x), run(of_two(swapped=True), x))


def test_mask_of_minus_infinity_is_no_broken_weight() -> None:
    mask = np.triu(np.full((4, 4), -np.inf, dtype="f4"), 1)
    weights = drawn(np.random.default_rng(0), a_w=(4, 3)) | {"mask": mask}
    nodes = [
        node("Unsqueeze", "x axes", "u"),
        node("Add", "u mask", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("ReduceMean", "p", "r", axes=[1], keepdims=0),
        node("MatMul", "r a.w", "y"),
    ]
    model = checked_model(model_of(nodes, weights | {"axes": np.array([1])}, shape=[4], output=[3]))
    assert trainable_names(model, ["*"]) == ["a.w"]
    np.testing.assert_array_equal(initialisers(model)["mask"], mask)
    broken = mask.copy()
    broken[0, 1] = np.nan
    for tensor in model.graph.initializer:
        if tensor.name == "mask":
            tensor.CopyFrom(numpy_helper.from_array(broken, "mask"))
    with pytest.raises(DataError, match="'mask' is not finite"):
        checked_model(model)


def test_equal_parameters_that_the_exporter_wrote_once_are_parted() -> None:
    weights = {"one": np.ones(4, dtype=np.float32), "w": np.eye(4, dtype=np.float32)}
    nodes = [
        helper.make_node("Identity", ["one"], ["two"]),
        helper.make_node("Identity", ["two"], ["three"]),
        helper.make_node("Mul", ["x", "one"], ["a"]),
        helper.make_node("Mul", ["a", "two"], ["b"]),
        helper.make_node("Mul", ["b", "three"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    model = checked_model(model_of(nodes, weights, shape=[4], output=[4]))
    assert [node.op_type for node in model.graph.node] == ["Mul", "Mul", "Mul", "MatMul"]
    found = initialisers(model)
    assert set(found) == {"one", "two", "three", "w"}
    assert all((found[name] == 1).all() for name in ("one", "two", "three"))
    assert trainable_names(model, ["*"]) == ["one", "w", "two", "three"]
