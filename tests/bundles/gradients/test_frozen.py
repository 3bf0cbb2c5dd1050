"""What no gradient passes stays as it is below what is trained, and is named where it is in the way."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

from edge_agent.errors import DataError
from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model, trainable_names
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array, gradients_of
from tests.bundles.nets import classified, conv1d, drawn, initialisers, model_of

HEAD = ["h.w", "h.b"]


def headed(nodes: Sequence[onnx.NodeProto], width: int, tensors: dict[str, Array] | None = None) -> onnx.ModelProto:
    """``x`` (n, 4) under ``below.w``, some nodes from ``m`` to ``f`` (n, width), and a dense head."""
    rng = np.random.default_rng(0)
    weights = drawn(rng, below_w=(4, 4), h_w=(width, 3)) | {"h.b": np.zeros(3, dtype="f4"), **(tensors or {})}
    every = [node("MatMul", "x below.w", "m"), *nodes, node("Gemm", "f h.w h.b", "y")]
    return model_of(every, weights, shape=[4], output=[3])


def recurrent(operator: str, gates: int) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    tensors = drawn(rng, r_w=(1, gates * 5, 4), r_r=(1, gates * 5, 5)) | {"axes": ints(0), "two": ints(1)}
    nodes = [
        node("Unsqueeze", "m axes", "sequence"),
        node(operator, "sequence r.w r.r", "states last", hidden_size=5, name="the_backbone"),
        node("Squeeze", "last axes", "f"),
    ]
    return headed(nodes, 5, tensors)


def branched() -> onnx.ModelProto:
    """An If whose branches read a value and a tensor from outside."""
    value = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    branches = [
        helper.make_graph([helper.make_node(operator, ["m", "inner.w"], ["out"])], operator, [], value)
        for operator in ("MatMul", "Add")
    ]
    choice = helper.make_node("If", ["c"], ["f"], name="the_choice", then_branch=branches[0], else_branch=branches[1])
    nodes = [node("ReduceSum", "m", "s", keepdims=0), node("Greater", "s zero", "c"), choice]
    tensors = drawn(np.random.default_rng(1), inner_w=(4, 4)) | {"zero": np.array(0, dtype="f4")}
    return headed(nodes, 4, tensors)


def looped() -> onnx.ModelProto:
    """Three rounds of a tanh."""
    body = helper.make_graph(
        [helper.make_node("Tanh", ["v"], ["v.next"]), helper.make_node("Identity", ["go"], ["go.next"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go.next", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v.next", TensorProto.FLOAT, None),
        ],
    )
    loop = helper.make_node("Loop", ["three", "", "m"], ["f"], name="the_loop", body=body)
    return headed([loop], 4, {"three": np.array(3, dtype=np.int64)})


def scanned() -> onnx.ModelProto:
    """A running sum over the values of each row, squashed, by a loop over a dimension."""
    free = ["rows"]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "value"], ["sum.next"]),
            helper.make_node("Tanh", ["sum.next"], ["bent"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, free) for name in ("sum", "value")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, free) for name in ("sum.next", "bent")],
    )
    along: dict[str, Any] = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}
    scan = helper.make_node("Scan", ["start", "m"], ["end", "f"], name="the_scan", body=body, **along)
    return headed([node("ReduceMax", "m", "start", axes=[1], keepdims=0), scan], 4)


BACKBONES: dict[str, Callable[[], onnx.ModelProto]] = {
    "LSTM": lambda: recurrent("LSTM", 4),
    "GRU": lambda: recurrent("GRU", 3),
    "RNN": lambda: recurrent("RNN", 1),
    "If": branched,
    "Loop": looped,
    "Scan": scanned,
    "Hardmax": lambda: headed([node("Hardmax", "m", "f")], 4),
    "ConcatFromSequence": lambda: headed(
        [node("SequenceConstruct", "m m", "several"), node("ConcatFromSequence", "several", "f", axis=1)], 8
    ),
    "Det": lambda: headed(
        [node("Reshape", "m size", "s"), node("Det", "s", "d", name="the_det"), node("Reshape", "d flat", "f")],
        1,
        {"size": ints(-1, 2, 2), "flat": ints(-1, 1)},
    ),
}
NAMED = [name for name in BACKBONES if name != "Hardmax"]


def head_gradients(model: onnx.ModelProto, x: Array, labels: Array) -> dict[str, Array]:
    """The gradients of a dense head, from what it is given."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    exposed.graph.output.append(onnx.ValueInfoProto(name="f"))
    given = Session("exposed", exposed.SerializeToString(), {}, threads=1).run({"x": x})
    powers = np.exp(given["y"] - given["y"].max(axis=1, keepdims=True))
    excess = (powers / powers.sum(axis=1, keepdims=True) - np.eye(3)[labels]) / len(x)
    return {"h.w": given["f"].T @ excess, "h.b": excess.sum(axis=0)}


def batch(rows: int = 6) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(rows, 4)).astype(np.float32), rng.integers(0, 3, rows)


@pytest.mark.parametrize("operator", BACKBONES)
def test_backbone_stays_frozen_below_a_trained_head(operator: str) -> None:
    model = checked_model(BACKBONES[operator]())
    x, labels = batch()
    gradients = gradients_of(model, HEAD, "cross-entropy", x, labels)[1]
    for name, expected in head_gradients(model, x, labels).items():
        np.testing.assert_allclose(gradients[name], expected, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("operator", NAMED)
def test_operator_in_the_way_is_named_with_what_can_be_trained(operator: str) -> None:
    model = checked_model(BACKBONES[operator]())
    way_out = r"\(train only tensors above it: h\.w, h\.b\)$"
    with pytest.raises(DataError, match=rf"\({operator}\): the operator has no gradient rule.*{way_out}"):
        gradients_of(model, [*HEAD, "below.w"], "cross-entropy", *batch())


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_recurrent_weights_are_named_too(operator: str) -> None:
    model = checked_model(BACKBONES[operator]())
    with pytest.raises(DataError, match=rf"node 'the_backbone' \({operator}\): .*recurrent layers stay frozen.*h\.w"):
        gradients_of(model, trainable_names(model, ["*", "!below.w"]), "cross-entropy", *batch())


def test_tensor_that_a_branch_reads_from_outside_is_named() -> None:
    with pytest.raises(DataError, match=r"'the_choice' \(If\).*reads 'inner\.w' inside it"):
        gradients_of(checked_model(branched()), [*HEAD, "inner.w"], "cross-entropy", *batch())


def test_operator_without_slope_lets_nothing_through() -> None:
    model = checked_model(BACKBONES["Hardmax"]())
    with pytest.raises(DataError, match=r"'below\.w' has no influence on output 'y'"):
        gradients_of(model, [*HEAD, "below.w"], "cross-entropy", *batch())


def test_way_out_passes_every_obstacle_not_only_the_last() -> None:
    weights = drawn(np.random.default_rng(0), a_w=(4, 4), b_w=(4, 4), c_w=(4, 3))
    nodes = [
        node("MatMul", "x a.w", "a"),
        node("LpNormalization", "a", "l", name="lower"),
        node("MatMul", "x b.w", "b"),
        node("LpNormalization", "b", "k", name="beside"),
        node("Add", "l k", "s"),
        node("MatMul", "s c.w", "y"),
    ]
    model = model_of(nodes, weights, shape=[4], output=[3])
    with pytest.raises(DataError, match=r"node 'beside' .*above it: c\.w\)$"):
        gradients_of(model, ["a.w", "b.w", "c.w"], "cross-entropy", *batch())


def test_other_float_types_in_the_way_are_named() -> None:
    cast = [node("Cast", "m", "wide", to=TensorProto.DOUBLE), node("Tanh", "wide", "bent", name="the_wide_one")]
    model = headed([*cast, node("Cast", "bent", "f", to=TensorProto.FLOAT)], 4)
    with pytest.raises(DataError, match=r"'the_wide_one' \(Tanh\): it computes in double.*above it: h\.w, h\.b"):
        gradients_of(model, [*HEAD, "below.w"], "cross-entropy", *batch())


class _Rows(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime is untyped
    """A few batches for onnxruntime's quantisation."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._batches = iter([{"x": classified(model, 8, seed=seed)["x"]} for seed in range(3)])

    def get_next(self) -> Any:
        return next(self._batches, None)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator], ids=["QDQ", "QOperator"])
def test_float_head_trains_on_a_quantised_backbone(form: QuantFormat, tmp_path: Path) -> None:
    model = conv1d()
    for number, drawn_node in enumerate(model.graph.node):
        drawn_node.name = f"n{number}"
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantised.onnx",
        _Rows(model),
        quant_format=form,
        nodes_to_exclude=[model.graph.node[-1].name],
        per_channel=True,
    )
    quantised = checked_model(onnx.load(tmp_path / "quantised.onnx"))
    assert {drawn_node.op_type for drawn_node in quantised.graph.node} & {"QLinearConv", "DequantizeLinear"}
    assert trainable_names(quantised, ["*"]) == ["d.w", "d.b"]
    data = classified(model, 32)
    found = gradients_of(quantised, ["d.w", "d.b"], "cross-entropy", data["x"], data["label"])[1]
    near = gradients_of(model, ["d.w", "d.b"], "cross-entropy", data["x"], data["label"])[1]
    for name, gradient in found.items():
        assert np.abs(gradient - near[name]).max() < 0.1 * np.abs(near[name]).max(), name


def test_quantised_value_in_the_way_is_named() -> None:
    scale = {"scale": np.array(0.05, dtype="f4"), "zero": np.array(0, dtype=np.int8)}
    nodes = [node("QuantizeLinear", "m scale zero", "q"), node("DequantizeLinear", "q scale zero", "f")]
    model = headed(nodes, 4, scale)
    with pytest.raises(DataError, match=r"'below\.w' has no influence"):
        gradients_of(model, [*HEAD, "below.w"], "cross-entropy", *batch())
    assert trainable_names(checked_model(model), ["*"]) == ["below.w", "h.w", "h.b"]


def test_branch_keeps_the_tensors_that_it_reads() -> None:
    """They are named inside it only."""
    model = checked_model(branched())
    assert "inner.w" in initialisers(model)
    assert numpy_helper.to_array(model.graph.initializer[0]).size
