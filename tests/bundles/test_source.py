"""The form in which a model is served."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_agent.errors import DataError
from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model
from server_bridge.bundles.source import read_model, served_model
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array
from tests.bundles.nets import drawn, model_of

SHAPED = {
    "squeezed": [node("Squeeze", "p a", "y")],
    "reshaped": [node("Reshape", "p m", "y")],
    "twice": [node("Identity", "p", "q"), node("Reshape", "q m", "y")],
}


def shaped(last: str, width: int, after: list[onnx.NodeProto], output: list[int]) -> onnx.ModelProto:
    weights = drawn(np.random.default_rng(1), w=(4, width)) | {"a": ints(-1), "m": ints(-1)}
    return model_of([node("MatMul", "x w", "z"), node(last, "z", "p"), *after], weights, shape=[4], output=output)


def run(model: onnx.ModelProto, x: Array) -> Array:
    return Session("test", model.SerializeToString(), {}, threads=1).run({"x": x})["y"]


@pytest.mark.parametrize("name", SHAPED)
def test_probability_in_another_shape_is_served_as_its_logit(name: str) -> None:
    model = checked_model(shaped("Sigmoid", 1, SHAPED[name], []))
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("f4")
    probabilities = run(model, x)
    logits = run(served_model(model, "binary-cross-entropy"), x)
    assert logits.shape == (5,)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), probabilities, rtol=1e-5)


def test_probabilities_of_classes_in_another_shape_are_served_as_their_logarithms() -> None:
    after = [node("Unsqueeze", "p a", "q"), node("Flatten", "q", "y")]
    model = checked_model(shaped("Softmax", 3, after, [3]))
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("f4")
    probabilities = run(model, x)
    np.testing.assert_allclose(np.exp(run(served_model(model, "cross-entropy"), x)), probabilities, rtol=1e-5)


def test_probabilities_that_another_node_reads_before_they_are_shaped_are_refused() -> None:
    after = [node("Squeeze", "p a", "y"), node("Sqrt", "p", "root")]
    model = shaped("Sigmoid", 1, after, [])
    model.graph.output.append(onnx.helper.make_tensor_value_info("root", 1, ["n", 1]))
    with pytest.raises(DataError, match="probabilities 'p' are used inside the graph"):
        served_model(checked_model(model), "binary-cross-entropy")


def test_a_regression_keeps_its_sigmoid() -> None:
    model = checked_model(shaped("Sigmoid", 1, SHAPED["squeezed"], []))
    assert "Sigmoid" in {made.op_type for made in served_model(model, "mse").graph.node}


def test_a_model_without_the_file_of_its_weights_is_refused(tmp_path: Path) -> None:
    model = shaped("Softmax", 3, [], [3])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    assert read_model(tmp_path / "m.onnx").graph.node == model.graph.node
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(DataError, match=r"m.onnx keeps its weights in another file: .*m.onnx.data.*put that file"):
        read_model(tmp_path / "m.onnx")
