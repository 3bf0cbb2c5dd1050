"""Real exported nets are cut at an embedding: the two parts together predict what the whole does."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edge_agent.model.session import Session
from server_bridge.bundles.checks import checked_model, trainable_names
from server_bridge.bundles.head import cut_head, head_graphs, with_embedding
from server_bridge.bundles.inference_file import inference_file, initial_weights
from server_bridge.bundles.settings import BuildSettings
from server_bridge.bundles.source import served_model
from tests.bundles.nets import Array

FILES = Path(__file__).parent / "files"
ROWS, LENGTH, WORDS = 6, 12, 5
NETS = {
    "temporal": 2,
    "mobile": 2,
    "mobile-as-traced": 2,
    "encoder": 2,
    "encoder-with-attention": 2,
    "gru": 2,
    "text": 2,
    "sequence": 2,
    "keras-image": 2,
    "sklearn-two": 2,
}
"""How many tensors the head has: a dense layer's weight and bias, whatever lies below."""


def example(model: onnx.ModelProto) -> dict[str, Array]:
    """Noise for every input; whole numbers are words."""
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [ROWS, *(size.dim_value or LENGTH for size in tensor.shape.dim[1:])]
        whole = tensor.elem_type == TensorProto.INT64
        feeds[value.name] = rng.integers(0, WORDS, shape) if whole else rng.normal(size=shape).astype(np.float32)
    return feeds


@pytest.mark.parametrize("name", NETS)
def test_an_exported_net_has_a_head(name: str) -> None:
    served = served_model(checked_model(onnx.load(FILES / f"{name}.onnx")), "cross-entropy")
    names = trainable_names(served, ["*"])
    weights = initial_weights(served, names)
    feeds = example(served)
    output = served.graph.output[0].name
    wanted = Session("whole", served.SerializeToString(), {}, threads=1).run(feeds)[output]
    head = cut_head(served, names, None)
    assert len(head.trainable) == NETS[name]
    whole = Session("infer", inference_file(with_embedding(served, head), weights), weights, threads=1)
    outputs = whole.run(feeds)
    part = {tensor: weights[tensor] for tensor in head.trainable}
    above = Session("head", inference_file(head.model, weights), part, threads=1)
    predicted = above.run({head.embedding: outputs[head.embedding]})[output]
    np.testing.assert_allclose(outputs[output], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(predicted, wanted, rtol=1e-5, atol=1e-5)
    settings = BuildSettings(trainable=["*"], loss="cross-entropy", optimisers=["sgd"])
    (graph,) = head_graphs(head, settings)
    assert set(graph.spec.trainable) == set(head.trainable)
    Session("train", graph.model.SerializeToString(), {}, threads=1)
