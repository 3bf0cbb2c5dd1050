"""How many training graphs a bundle has room for."""

import pytest

from edge_agent.errors import DataError
from server_bridge.bundles.graphs_of import GRAPHS_CAP, WITH_HEAD_CAP, training_graphs, within_cap
from server_bridge.bundles.settings import BuildSettings
from tests.bundles.nets import mlp


def test_graphs_of_several_steps_are_left_out_where_there_is_no_room_for_their_files() -> None:
    (graph,) = training_graphs(mlp(), BuildSettings(["*"], "cross-entropy", optimisers=["sgd"]))
    assert set(graph.models) == {"train/sgd.onnx", "train/sgd.series.onnx"}
    half = GRAPHS_CAP // 2
    assert within_cap([graph] * half) == [graph] * half
    for kept in within_cap([graph] * (half + 1)):
        assert (set(kept.models), kept.spec.series) == ({"train/sgd.onnx"}, None)
    with pytest.raises(
        DataError, match=f"{WITH_HEAD_CAP + 1} training graphs are wanted, those of the head among them"
    ):
        within_cap([graph] * (WITH_HEAD_CAP + 1))
