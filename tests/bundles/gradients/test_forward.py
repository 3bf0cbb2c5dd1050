"""What is known of a graph before it runs."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array, check_gradients, gradients_of
from tests.bundles.nets import cnn2d, drawn, model_of


def free_model(nodes: Sequence[onnx.NodeProto], tensors: dict[str, Array], width: int = 4) -> onnx.ModelProto:
    """From ``x`` (n, time, width), where time is free, to ``y`` (n, 3)."""
    model = model_of(nodes, tensors, shape=[1, width], output=[3])
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "time"
    return model


def test_batch_is_free_and_the_rest_is_known() -> None:
    forward = Forward.read(cnn2d())
    assert forward.shapes["c1"] == (None, 4, 9, 8)
    assert forward.shapes["a.w"] == (4, 2, 3, 3)
    assert not forward.settled


def test_sizes_that_a_graph_computes_are_settled_and_the_batch_is_not() -> None:
    """A chain as the older exporter of torch writes it: Shape, Gather, Concat, Reshape."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Gather", "s one", "width"),
        node("Div", "width two", "half"),
        node("Unsqueeze", "half axis", "h"),
        node("Unsqueeze", "n axis", "b"),
        node("Concat", "b h two.", "size", axis=0),
        node("Reshape", "x size", "r"),
        node("ReduceSum", "r one.", "y", keepdims=0),
    ]
    numbers = {
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "axis": ints(0),
        "two.": ints(2),
        "one.": ints(1),
    }
    forward = Forward.read(model_of(nodes, numbers, shape=[8], output=[2]))
    assert forward.shapes["r"] == (None, 4, 2)
    assert forward.settled["half"] == 4
    assert "n" not in forward.settled
    assert "size" not in forward.settled


def test_scales_that_a_graph_puts_together_are_settled() -> None:
    """As torch's older exporter writes an enlargement where it may not fold constants."""
    nodes = [
        node("Conv", "x w", "h"),
        node("Concat", "keep twice", "scales", axis=0),
        node("Resize", "h - scales", "r", mode="linear"),
        node("ReduceMean", "r", "y", axes=[2, 3], keepdims=0),
    ]
    tensors = drawn(np.random.default_rng(0), w=(4, 1, 2, 2)) | {
        "keep": np.ones(2, "f4"),
        "twice": np.full(2, 2.0, "f4"),
    }
    model = model_of(nodes, tensors, shape=[1, 4, 4], output=[4])
    x = np.random.default_rng(1).normal(size=(3, 1, 4, 4)).astype("f4")
    check_gradients(model, ["w"], "cross-entropy", x, np.array([0, 1, 3]))


def test_numbers_that_depend_on_the_input_are_not_settled() -> None:
    """They are alike in trial runs, which see zeros."""
    nodes = [
        node("Cast", "x", "i", to=TensorProto.INT64),
        node("ReduceMax", "i", "m", axes=[0, 1], keepdims=0),
        node("Unsqueeze", "m axis", "u"),
        node("Concat", "u end", "p", axis=0),
        node("Identity", "x", "y"),
    ]
    forward = Forward.read(model_of(nodes, {"axis": ints(0), "end": ints(3)}, shape=[4], output=[4]))
    assert "p" not in forward.settled
    assert "m" not in forward.settled


def test_shape_that_depends_on_the_data_stays_unknown() -> None:
    nodes = [
        node("NonZero", "x", "i"),
        node("Transpose", "i", "t"),
        node("GatherND", "x t", "g"),
        node("ReduceSum", "g", "s", keepdims=0),
        node("Shape", "x", "n"),
        node("Add", "x s", "y"),
    ]
    forward = Forward.read(model_of(nodes, {}, shape=[4], output=[4]))
    assert None in forward.shapes.get("g", (None,))
    assert forward.shapes["y"] == (None, 4)


def test_gradient_that_needs_an_unknown_shape_is_refused_by_name() -> None:
    """Which axes are summed over depends on the data."""
    weights = drawn(np.random.default_rng(0), a_w=(4, 4))
    nodes = [
        node("MatMul", "x a.w", "m"),
        node("NonZero", "x", "i"),
        node("Shape", "i", "k", start=0, end=1),
        node("Sub", "k one", "axes"),
        node("ReduceSum", "m axes", "r", keepdims=1, name="the_sum"),
        node("Reshape", "r size", "y"),
    ]
    model = model_of(nodes, weights | {"one": ints(1), "size": ints(-1, 1)}, shape=[4], output=[1])
    with pytest.raises(
        DataError, match=r"'the_sum' \(ReduceSum\): input axes \('axes'\) is computed while the graph runs"
    ):
        gradients_of(model, ["a.w"], "mse", np.ones((2, 4), dtype="f4"), np.zeros(2, dtype="f4"))


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 5), length=st.integers(2, 9), seed=st.integers(0, 99))
def test_free_length_is_followed_as_the_graph_runs(rows: int, length: int, seed: int) -> None:
    """Slices, means, concatenations and reshapes along an axis whose size comes with the batch."""
    weights = drawn(np.random.default_rng(0), a_w=(4, 4), b_w=(1, 4), c_w=(8, 3))
    nodes = [
        node("MatMul", "x a.w", "m"),
        node("Slice", "m from to axis", "tail"),
        node("Slice", "m zero to_last axis", "front"),
        node("Sub", "tail front", "d"),
        node("Concat", "d m", "joined", axis=1),
        node("Mul", "joined b.w", "scaled"),
        node("Shape", "scaled", "s"),
        node("Reshape", "scaled flat", "rows"),
        node("Tanh", "rows", "bent"),
        node("Reshape", "bent s", "back"),
        node("ReduceMean", "back", "mean", axes=[1], keepdims=0),
        node("Gather", "back last", "end", axis=1),
        node("Concat", "mean end", "both", axis=1),
        node("MatMul", "both c.w", "y"),
    ]
    frozen = {
        "from": ints(1), "to": ints(2**63 - 1), "axis": ints(1), "zero": ints(0), "to_last": ints(-1),
        "flat": ints(-1, 4), "last": np.array(-1),
    }  # fmt: skip
    model = free_model(nodes, weights | frozen)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, length, 4)).astype(np.float32)
    check_gradients(model, ["a.w", "b.w", "c.w"], "cross-entropy", x, rng.integers(0, 3, rows))


def test_model_that_no_trial_size_suits_is_read_as_far_as_inference_goes() -> None:
    """A reshape wants a multiple of seven: no trial has one, and the rule that needs the shape says so."""
    weights = drawn(np.random.default_rng(0), a_w=(4, 4))
    nodes = [
        node("MatMul", "x a.w", "m"),
        node("Shape", "m", "s", start=0, end=1),
        node("Concat", "s rest", "size", axis=0),
        node("Reshape", "m size", "r"),
        node("Concat", "r r", "c", axis=3, name="the_join"),
        node("ReduceMean", "c", "y", axes=[1, 2], keepdims=0),
    ]
    model = free_model(nodes, weights | {"rest": ints(-1, 7, 3)})
    x = np.ones((2, 21, 4), dtype="f4")
    forward = Forward.read(model)
    assert forward.shapes["a.w"] == (4, 4)
    assert "size" not in forward.settled
    gradients = gradients_of(model, ["a.w"], "cross-entropy", x, np.array([0, 1]))[1]
    assert np.isfinite(gradients["a.w"]).all()


def test_constants_of_nodes_and_initialisers_are_known() -> None:
    value = helper.make_node("Constant", [], ["k"], value_ints=[1, 2])
    model = model_of([value, node("Identity", "x", "y")], {"w": ints(3)}, shape=[4], output=[4])
    forward = Forward.read(model)
    assert forward.constant("k") is not None
    np.testing.assert_array_equal(forward.constant("w"), [3])
    assert forward.constant("x") is None


def test_output_of_unknown_shape_is_refused_by_name() -> None:
    nodes = [node("MatMul", "x a.w", "m"), node("NonZero", "m", "i"), node("Cast", "i", "y", to=TensorProto.FLOAT)]
    model = model_of(nodes, drawn(np.random.default_rng(0), a_w=(4, 4)), shape=[4], output=None)
    with pytest.raises(DataError, match=r"output 'y' has shape|the shape of 'y' is unknown"):
        gradients_of(model, ["a.w"], "cross-entropy", np.ones((2, 4), dtype="f4"), np.array([0, 1]))
