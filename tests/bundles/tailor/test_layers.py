"""Where layers end."""

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.tailor.build import TailorSettings, tailored_files
from server_bridge.bundles.tailor.layers import Backbone, read_backbone
from tests.bundles.nets import cnn2d, conv1d, drawn, mlp, model_of
from tests.bundles.tailor.backbones import residual


def read(model: onnx.ModelProto, *at: str) -> Backbone:
    return read_backbone(Forward.read(model), at)


def test_a_layer_ends_after_activation_and_pooling_and_before_flatten() -> None:
    backbone = read(conv1d())
    found = [(layer.value, layer.sizes, layer.channels_first) for layer in backbone.layers]
    assert found == [("r1", (6, 13), True), ("p", (8, 3), True), ("r3", (10,), False)]
    assert backbone.features == "r3"


def test_a_residual_block_is_one_layer() -> None:
    backbone = read(residual())
    assert [layer.value for layer in backbone.layers] == ["s", "a", "m"]
    assert (backbone.layers[2].channels, backbone.layers[2].places, backbone.features) == (6, (1, 1), "f")


def test_a_dense_net_and_a_net_with_normalisation_are_read() -> None:
    assert [layer.value for layer in read(mlp()).layers] == ["r"]
    assert [layer.value for layer in read(cnn2d()).layers] == ["p1", "m"]


def test_layers_may_be_named_and_what_is_none_is_refused_with_those_that_are() -> None:
    assert [layer.value for layer in read(residual(), "a", "s1").layers] == ["s1", "a"]
    with pytest.raises(DataError, match="no layer can end at 'a2'") as error:
        read(residual(), "a2")
    assert "s1, s, a5, a, b4, b, m, f" in error.value.hint


def test_below_an_operator_without_a_gradient_nothing_is_mixed_in() -> None:
    weights = drawn(np.random.default_rng(1), a_w=(5, 8), b_w=(8, 8), c_w=(8, 6), d_w=(6, 3))
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["a"]),
        helper.make_node("MatMul", ["a", "b.w"], ["b"]),
        helper.make_node("Hardmax", ["b"], ["s"]),
        helper.make_node("MatMul", ["s", "c.w"], ["c"]),
        helper.make_node("MatMul", ["c", "d.w"], ["y"]),
    ]
    model = model_of(nodes, weights, shape=[5], output=[3])
    assert [(layer.value, layer.trains) for layer in read(model).layers] == [("a", False), ("s", True), ("c", True)]


def test_an_operator_that_is_defined_by_others_lets_gradients_through() -> None:
    weights = drawn(np.random.default_rng(1), a_w=(5, 8), b_w=(8, 8), c_w=(8, 3))
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["a"]),
        helper.make_node("MatMul", ["a", "b.w"], ["b"]),
        helper.make_node("Mish", ["b"], ["m"]),
        helper.make_node("MatMul", ["m", "c.w"], ["y"]),
    ]
    model = model_of(nodes, weights, shape=[5], output=[3], opset=18)
    assert [(layer.value, layer.trains) for layer in read(model).layers] == [("a", True), ("m", True)]
    made = tailored_files(model, TailorSettings({"t": None}, at=("a", "b"), optimisers=("sgd",)))
    assert made.manifest.training[0].trainable[0] == "t.layer2.mix"


def test_a_size_that_is_read_off_a_value_stops_no_gradient() -> None:
    """As torch writes ``x.view(x.size(0), -1)``."""
    weights = drawn(np.random.default_rng(1), a_w=(6, 2, 3, 3), b_w=(24, 4), c_w=(4, 3))
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    nodes = [
        helper.make_node("Conv", ["x", "a.w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["a"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["a", "wanted"], ["f"]),
        helper.make_node("MatMul", ["f", "b.w"], ["b"]),
        helper.make_node("MatMul", ["b", "c.w"], ["y"]),
    ]
    model = model_of(nodes, weights | constants, shape=[2, 4, 4], output=[3])
    layers = read(model).layers
    assert [(layer.value, layer.sizes, layer.trains) for layer in layers] == [("a", (6, 2, 2), True), ("b", (4,), True)]


def test_a_model_without_weights_has_no_layers() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, shape=[3], output=[3])
    with pytest.raises(DataError, match="no layer with weights"):
        read(model)
