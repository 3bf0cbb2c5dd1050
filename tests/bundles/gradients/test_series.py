"""Which nets have a graph of several steps, and that it is the single steps for nets as exporters write them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_agent.model.session import Session
from edge_agent.model.step_inputs import initial_buffers
from edge_agent.wire.manifest import LossName
from server_bridge.bundles.checks import checked_model, trainable_names
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.series import MOST_VALUES, deserves_series
from server_bridge.bundles.graphs_of import training_graphs
from server_bridge.bundles.inference_file import initial_weights
from server_bridge.bundles.settings import BuildSettings
from server_bridge.bundles.source import read_model, served_model
from tests.bundles.gradients.differences import Array
from tests.bundles.gradients.test_frozen import BACKBONES
from tests.bundles.nets import conv1d, mlp

FILES = Path(__file__).parents[1] / "exported" / "files"
STEPS, ROWS, RATE = 5, 9, 0.01


def fed_to(model: onnx.ModelProto, loss: LossName) -> dict[str, Array]:
    """STEPS batches by graph input; words of a text repeat."""
    rng = np.random.default_rng(0)
    fed: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = (STEPS, ROWS, *(size.dim_value or 6 for size in kind.shape.dim[1:]))
        words = rng.integers(0, 3, shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        fed[value.name] = rng.normal(size=shape).astype("f4") if kind.elem_type == onnx.TensorProto.FLOAT else words
    drawn = rng.integers(0, 2, (STEPS, ROWS)) if loss != "mse" else rng.normal(size=(STEPS, ROWS)).astype("f4")
    return fed | {"label": drawn}


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(
    ("file", "loss"), [("sklearn-three", "cross-entropy"), ("sklearn-value", "mse"), ("text", "cross-entropy")]
)
def test_an_exported_net_takes_the_single_steps(file: str, loss: LossName, threads: int) -> None:
    model = served_model(checked_model(read_model(FILES / f"{file}.onnx")), loss)
    (graph,) = training_graphs(model, BuildSettings(["*"], loss, optimisers=["adam"]))
    assert graph.series is not None
    alone, together = (
        Session("g", made.SerializeToString(), {}, threads=threads) for made in (graph.model, graph.series)
    )
    fed, first = fed_to(model, loss), dict(initial_buffers(graph.spec, initial_weights(model, graph.spec.trainable))[0])
    state: dict[str, Any] = dict(first)
    losses = []
    for k in range(STEPS):
        scalars = {
            name: np.array({"learning_rate": RATE, "step": k + 1}.get(name, 0), "f4") for name in graph.spec.scalars
        }
        outputs = alone.run({**{name: value[k] for name, value in fed.items()}, **state, **scalars})
        state = {name: outputs[f"out.{name}"] for name in state}
        losses.append(outputs["loss"])
    numbers = {"learning_rate": np.full(STEPS, RATE, "f4"), "step": np.arange(1, STEPS + 1, dtype="f4")}
    for _ in range(20 if threads == 4 else 1):
        outputs = together.run({**fed, **first, **numbers})
        assert not outputs["skipped"].any()
        np.testing.assert_array_equal(outputs["loss"], losses)
        for name, value in state.items():
            np.testing.assert_array_equal(outputs[f"out.{name}"], value, err_msg=name)


def test_large_nets_convolutions_and_what_is_not_known_have_none() -> None:
    nets = {name: BACKBONES[name]() for name in ("LSTM", "If", "Det")} | {
        "conv": conv1d(),
        "wide": mlp(inputs=MOST_VALUES),
        "many": mlp(inputs=9000),
    }
    for name, model in nets.items():
        forward = Forward.read(checked_model(model))
        assert not deserves_series(forward, trainable_names(forward.model, ["*"])), name
    forward = Forward.read(checked_model(mlp()))
    assert deserves_series(forward, trainable_names(forward.model, ["*"]))
