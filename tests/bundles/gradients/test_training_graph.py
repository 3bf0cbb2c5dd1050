"""Whole nets against central differences; the interface; what is refused."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LossName
from server_bridge.bundles.checks import for_training, opset
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.gradients.training_graph import Plan, TrainingGraph, training_graph
from tests.bundles.gradients.differences import check_gradients, gradients_of
from tests.bundles.nets import (
    CNN2D_TRAINABLE,
    classified,
    cnn2d,
    conv1d,
    drawn,
    initialisers,
    mlp,
    model_of,
    regression,
)


def made(model: onnx.ModelProto, trainable: Sequence[str], loss: LossName = "cross-entropy") -> TrainingGraph:
    return training_graph(Forward.read(for_training(model)), "y", Plan("adam", trainable, Objective(loss), "adam"))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("model", "trainable"),
    [
        (mlp(), ["a.w", "a.b", "b.w", "b.b"]),
        (mlp(last="LogSoftmax"), ["a.w", "b.b"]),
        (mlp(opset=13), ["a.w", "b.w"]),
        (mlp(opset=23), ["a.w", "b.w"]),
        (conv1d(), ["a.w", "a.b", "b.w", "b.b", "c.w", "c.b", "d.w", "d.b"]),
        (cnn2d(), CNN2D_TRAINABLE),
    ],
    ids=["mlp", "mlp to log-softmax", "mlp at opset 13", "mlp at opset 23", "conv1d", "cnn2d"],
)
def test_net_agrees_with_central_differences(model: onnx.ModelProto, trainable: list[str], seed: int) -> None:
    data = classified(model, 4, seed=seed)
    check_gradients(model, trainable, "cross-entropy", data["x"], data["label"])


def test_mean_squared_error_agrees_with_central_differences() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(6, 4)).astype("f4"), rng.normal(size=6).astype("f4")
    check_gradients(regression(), ["a.w", "a.b", "b.w"], "mse", x, labels)


@pytest.mark.parametrize(("model", "trainable"), [(conv1d(), ["a.w", "b.w", "c.w"]), (cnn2d(), CNN2D_TRAINABLE)])
def test_net_repeats_bit_for_bit_on_two_threads(model: onnx.ModelProto, trainable: list[str]) -> None:
    data = classified(model, 64)
    runs = [gradients_of(model, trainable, "cross-entropy", data["x"], data["label"], threads=2)[1] for _ in range(3)]
    for name in trainable:
        assert len({run[name].tobytes() for run in runs}) == 1


def test_interface_is_as_the_manifest_documents_it() -> None:
    graph = made(mlp(), ["a.w", "b.b"])
    inputs = {value.name for value in graph.model.graph.input}
    states = {"m.packed", "v.packed"}
    assert graph.spec.packed == ["a.w", "b.b"]
    scalars = {"learning_rate", "step", "clip_norm", "update_norm_cap"}
    assert inputs == {"x", "label", "a.w", "b.b"} | scalars | states
    assert set(graph.spec.scalars) == scalars
    assert graph.spec.defaults == {"clip_norm": 0.0, "update_norm_cap": 0.0}
    reports = {"gradient_norm", "update_norm", "skipped"}
    assert {value.name for value in graph.model.graph.output} == {"loss", "out.a.w", "out.b.b"} | reports | {
        f"out.{state}" for state in states
    }
    assert graph.spec.file == "train/adam.onnx"
    assert {tensor.name for tensor in graph.model.graph.initializer} >= {"a.b", "b.w"}


def test_training_graph_is_at_opset_17_at_least() -> None:
    assert opset(made(mlp(opset=13), ["a.w"]).model) == 17
    assert opset(made(mlp(opset=20), ["a.w"]).model) == 20


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_scatter_nd_is_never_emitted(optimiser: str) -> None:
    plan = Plan(optimiser, CNN2D_TRAINABLE, Objective("cross-entropy"), optimiser)  # type: ignore[arg-type]  # a key
    graph = training_graph(Forward.read(cnn2d()), "y", plan)
    operators = {node.op_type for node in graph.model.graph.node}
    assert "ScatterElements" in operators
    assert "ScatterND" not in operators


def test_frozen_part_below_keeps_an_unknown_operator_and_costs_no_gradient() -> None:
    weights = drawn(np.random.default_rng(0), a_w=(4, 4), b_w=(4, 3))
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["m"]),
        helper.make_node("Hardmax", ["m"], ["e"]),
        helper.make_node("MatMul", ["e", "b.w"], ["y"]),
    ]
    model = model_of(nodes, weights, shape=[4], output=[3])
    data = classified(model, 5)
    check_gradients(model, ["b.w"], "cross-entropy", data["x"], data["label"])
    graph = made(model, ["b.w"]).model.graph
    assert [node.op_type for node in graph.node].count("MatMul") == 2


def test_unknown_operator_in_the_way_is_named() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["m"]),
        helper.make_node("LpNormalization", ["m"], ["y"], name="the_odd_one"),
    ]
    model = model_of(nodes, drawn(np.random.default_rng(0), a_w=(4, 3)), shape=[4], output=[3])
    with pytest.raises(DataError, match=r"node 'the_odd_one' \(LpNormalization\): the operator has no gradient rule"):
        made(model, ["a.w"])


@pytest.mark.parametrize(
    ("node", "named"),
    [
        (helper.make_node("MaxPool", ["c"], ["p"], name="n", kernel_shape=[2], storage_order=1), "storage_order=1"),
        (
            helper.make_node(
                "AveragePool", ["c"], ["p"], name="n", kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1
            ),
            "ceil_mode=1",
        ),
    ],
)
def test_unsupported_attribute_is_named(node: onnx.NodeProto, named: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "a.w"], ["c"]),
        node,
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["y"]),
    ]
    model = model_of(nodes, drawn(np.random.default_rng(0), a_w=(3, 2, 2)), shape=[2, 8], output=[3])
    with pytest.raises(DataError, match=rf"node 'n' \({node.op_type}\): attribute {named}"):
        made(model, ["a.w"])


def test_batch_statistics_are_not_trained() -> None:
    with pytest.raises(DataError, match=r"BatchNormalization\): 'n.mean' is a statistic.*--trainable '!n.mean'"):
        made(cnn2d(), ["n.mean", "a.w"])


def test_free_spatial_size_is_named() -> None:
    model = conv1d()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "length"
    with pytest.raises(DataError, match="the input's spatial part has a free dimension"):
        made(model, ["a.w"])


def test_tensor_without_influence_is_named() -> None:
    model = mlp()
    model.graph.initializer.append(helper.make_tensor("idle", TensorProto.FLOAT, [1], [1.0]))
    with pytest.raises(DataError, match="'idle' has no influence"):
        made(model, ["idle"])


def test_reserved_name_is_named() -> None:
    model = mlp()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "learning_rate"
    with pytest.raises(DataError, match="'learning_rate', which a training graph needs"):
        made(model, ["a.w"])


def test_shape_operators_between_are_no_obstacle() -> None:
    """Exporters compute a Reshape's size from Shape; no gradient flows there."""
    weights = drawn(np.random.default_rng(0), a_w=(4, 6), b_w=(6, 3)) | {
        "zero": np.array(0, dtype=np.int64),
        "axis": np.array([0], dtype=np.int64),
        "rest": np.array([-1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["m"]),
        helper.make_node("Shape", ["m"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["u"]),
        helper.make_node("Concat", ["u", "rest"], ["size"], axis=0),
        helper.make_node("Reshape", ["m", "size"], ["r"]),
        helper.make_node("Tanh", ["r"], ["t"]),
        helper.make_node("MatMul", ["t", "b.w"], ["y"]),
    ]
    model = model_of(nodes, weights, shape=[4], output=[3])
    data = classified(model, 5)
    check_gradients(model, ["a.w", "b.w"], "cross-entropy", data["x"], data["label"])


def test_fixture_nets_are_valid_onnx() -> None:
    for model in (mlp(), regression(), conv1d(), cnn2d()):
        onnx.checker.check_model(model, full_check=True)
        assert initialisers(model)
