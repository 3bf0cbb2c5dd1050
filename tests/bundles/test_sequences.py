"""Parts that an exporter takes out of a sequence."""

import numpy as np
import pytest

from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array, check_gradients
from tests.bundles.nets import drawn, model_of


@pytest.mark.parametrize("sizes", [np.array(2), ints(3, 1, 1)], ids=["chunks", "sizes"])
def test_parts_of_a_split_train_and_are_what_they_were(sizes: Array) -> None:
    nodes = [
        node("MatMul", "x w", "h"),
        node("SplitToSequence", "h sizes", "s", axis=1),
        node("SequenceAt", "s one", "a"),
        node("SequenceAt", "s two", "b"),
        node("Tanh", "a", "t"),
        node("Mul", "t b", "y"),
    ]
    tensors = drawn(np.random.default_rng(1), w=(4, 5)) | {"sizes": sizes, "one": np.array(1), "two": np.array(2)}
    model = model_of(nodes, tensors, shape=[4], output=[1 if sizes.ndim else 2])
    cut = checked_model(model)
    assert {made.op_type for made in cut.graph.node} == {"MatMul", "Slice", "Tanh", "Mul"}
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("f4")
    one, other = (Session("test", m.SerializeToString(), {}, threads=1).run({"x": x})["y"] for m in (model, cut))
    np.testing.assert_array_equal(one, other)
    labels = np.arange(5) if sizes.ndim else np.array([0, 1, 1, 0, 1])
    check_gradients(
        cut, ["w"], "mse" if sizes.ndim else "cross-entropy", x, labels.astype("f4" if sizes.ndim else "i8")
    )


def test_place_that_is_counted_from_the_end_stays() -> None:
    nodes = [node("SplitToSequence", "x sizes", "s", axis=1), node("SequenceAt", "s last", "y")]
    model = checked_model(model_of(nodes, {"sizes": np.array(2), "last": np.array(-1)}, shape=[4], output=[2]))
    assert "SequenceAt" in {made.op_type for made in model.graph.node}
