"""What build refuses of a model, by name and with the way out."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_agent.errors import DataError
from server_bridge.bundles.checks import checked_model, opset, trainable_names
from tests.bundles.nets import cnn2d, drawn, initialisers, mlp, model_of


@pytest.mark.parametrize("version", [12, 24])
def test_opset_outside_the_range_is_refused_with_the_remedy(version: int) -> None:
    with pytest.raises(DataError, match=rf"opset is {version}; 13 to 23 are supported \(export it at opset 17"):
        checked_model(mlp(opset=version))


@pytest.mark.parametrize("version", [13, 17, 23])
def test_opset_in_the_range_is_kept(version: int) -> None:
    assert opset(checked_model(mlp(opset=version))) == version


@pytest.mark.parametrize("place", ["input", "output"])
def test_fixed_batch_axis_is_refused_by_name(place: str) -> None:
    model = mlp()
    value = getattr(model.graph, place)[0]
    value.type.tensor_type.shape.dim[0].dim_value = 1
    with pytest.raises(DataError, match=f"'{value.name}' has a fixed batch axis of 1"):
        checked_model(model)


def test_scalar_input_is_refused_by_name() -> None:
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.FLOAT, []))
    with pytest.raises(DataError, match="'rate' has no batch axis"):
        checked_model(model)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weight_that_is_not_finite_is_refused_by_name(value: float) -> None:
    model = mlp()
    tensor = next(t for t in model.graph.initializer if t.name == "b.w")
    damaged = numpy_helper.to_array(tensor).copy()
    damaged[1, 2] = value
    tensor.CopyFrom(numpy_helper.from_array(damaged, "b.w"))
    with pytest.raises(DataError, match=r"initialiser 'b.w' is not finite"):
        checked_model(model)


def test_invalid_graph_is_refused() -> None:
    model = mlp()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(DataError, match="not valid ONNX: No Op registered for NoSuchOperator"):
        checked_model(model)


@pytest.mark.parametrize("name", ["label", "holdout", "group"])
def test_input_named_as_a_data_column_is_refused(name: str) -> None:
    model = mlp()
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    with pytest.raises(DataError, match=f"'{name}' has a meaning of its own in data files"):
        checked_model(model)


def test_name_that_is_too_long_is_refused() -> None:
    model = mlp()
    model.graph.input[0].name = model.graph.node[0].input[0] = "x" * 129
    with pytest.raises(DataError, match="has 129 characters"):
        checked_model(model)


def test_initialisers_are_no_inputs_unused_ones_go_and_free_sizes_get_names() -> None:
    model = mlp()
    for name, value in initialisers(model).items():
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, "f4"), "unused"))
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    checked = checked_model(model)
    assert [value.name for value in checked.graph.input] == ["x"]
    assert checked.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert "unused" not in initialisers(checked)
    assert len(model.graph.input) == 5


def test_local_functions_are_inlined() -> None:
    weights = drawn(np.random.default_rng(0), a_w=(4, 3))
    model = model_of(
        [helper.make_node("MatMul", ["x", "a.w"], ["m"]), helper.make_node("Twice", ["m"], ["y"], domain="local")],
        weights,
        shape=[4],
        output=[3],
    )
    model.opset_import.append(helper.make_opsetid("local", 1))
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model.functions.append(twice)
    assert [node.op_type for node in checked_model(model).graph.node] == ["MatMul", "Add"]


def test_patterns_choose_in_the_graphs_order_and_exclude() -> None:
    model = checked_model(cnn2d())
    assert trainable_names(model, ["n.*", "a.w", "!n.mean", "!n.var"]) == ["a.w", "n.scale", "n.bias"]


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        (["z.*"], r"no float32 initialiser matches 'z.\*' \(there are: a.w, a.b, b.w, b.b\)"),
        (["a.*", "!z"], "no float32 initialiser matches 'z'"),
        (["a.w", "!a.*"], "no tensor is left"),
        ([], "no tensor is left"),
    ],
)
def test_pattern_without_a_match_is_named(patterns: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        trainable_names(checked_model(mlp()), patterns)


def test_integer_tensor_is_not_trained() -> None:
    weights = drawn(np.random.default_rng(0), a_w=(4, 6)) | {"size": np.array([0, 3, 2], dtype=np.int64)}
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["m"]),
        helper.make_node("Reshape", ["m", "size"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["y"], keepdims=0),
    ]
    nodes[2] = helper.make_node("Flatten", ["r"], ["y"])
    model = checked_model(model_of(nodes, weights, shape=[4], output=[6]))
    assert trainable_names(model, ["*"]) == ["a.w"]
    with pytest.raises(DataError, match="'size' is not float32"):
        trainable_names(model, ["size"])


def test_checked_model_is_a_copy() -> None:
    model = mlp()
    before = model.SerializeToString()
    assert isinstance(checked_model(model), onnx.ModelProto)
    assert model.SerializeToString() == before
