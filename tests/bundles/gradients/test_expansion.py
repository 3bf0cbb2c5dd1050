"""Operators that are written out by others where a gradient must pass."""

import numpy as np
import onnx
import pytest

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.expansion import expanded
from tests.bundles.gradients.cases import Case, assembled, ints, node
from tests.bundles.gradients.differences import check_gradients, gradients_of

WRITTEN_OUT = [
    Case("CastLike", (4, 3), [node("CastLike", "h k")], frozen={"k": np.array(1, dtype="f4")}),
    Case("Celu", (4, 3), [node("Celu", alpha=0.7)]),
    Case("MeanVarianceNormalization", (4, 3), [node("MeanVarianceNormalization", axes=[0, 2])]),
    Case("Mish", (4, 3), [node("Mish")], opset=18),
    Case("RMSNormalization", (4, 3), [node("RMSNormalization", "h w")], {"w": (3,)}, opset=23),
    Case("ReduceLogSum", (4, 3), [node("Exp", "h", "p"), node("ReduceLogSum", "p a")], frozen={"a": ints(1)}, opset=18),
    Case("Shrink", (4, 3), [node("Shrink", lambd=0.3, bias=0.1)], opset=18),
    Case("Shrink by defaults", (4, 3), [node("Shrink")], opset=18),
    Case("ThresholdedRelu", (4, 3), [node("ThresholdedRelu")], opset=18),
    Case(
        "Attention",
        (2, 5, 4),
        [node("Tanh", "h", "k"), node("Neg", "h", "v"), node("Attention", "h k v", is_causal=1)],
        opset=23,
    ),
]
UNREFERENCED = ("Attention", "MeanVarianceNormalization", "RMSNormalization")
"""onnx's reference evaluator computes them in float32 only."""


@pytest.mark.parametrize("case", WRITTEN_OUT, ids=lambda case: case.name)
def test_gradient_through_a_definition(case: Case) -> None:
    model, trainable, x, labels = assembled(case)
    if case.name not in UNREFERENCED:
        check_gradients(model, trainable, "cross-entropy", x, labels)
        return
    moved = gradients_of(model, trainable, "cross-entropy", x, labels)
    assert all(np.abs(gradient).max() > 0 for gradient in moved[1].values())


def operators(model: onnx.ModelProto) -> set[str]:
    return {drawn.op_type for drawn in model.graph.node}


def test_frozen_part_is_not_written_out() -> None:
    model, *_ = assembled(
        Case("frozen mish", (4,), [node("Mish"), node("MatMul", "z w", "q")], {"w": (4, 2)}, opset=18)
    )
    model.graph.node[-1].input[0] = "q"
    assert "Mish" in operators(expanded(model, ["w"]))
    assert "Mish" not in operators(expanded(model, ["w", "scale"]))


def test_operator_without_definition_is_left_to_be_named() -> None:
    model, trainable, x, labels = assembled(Case("no definition", (4,), [node("LpNormalization", name="odd")]))
    assert "LpNormalization" in operators(expanded(model, trainable))
    with pytest.raises(DataError, match=r"'odd' \(LpNormalization\)"):
        gradients_of(model, trainable, "cross-entropy", x, labels)


def test_values_are_the_same_written_out() -> None:
    from edge_agent.model.session import Session

    for case in WRITTEN_OUT:
        model, trainable, x, _ = assembled(case)
        plain, written = (
            Session(case.name, made.SerializeToString(), {}, threads=1).run({"x": x})["y"]
            for made in (model, expanded(model, trainable))
        )
        np.testing.assert_allclose(written, plain, rtol=1e-4, atol=1e-5, err_msg=case.name)
