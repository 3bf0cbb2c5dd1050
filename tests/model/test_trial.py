"""Graphs on random data."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.trial import (
    FREE_SIZE,
    buffer_bytes,
    random_features,
    random_labels,
    resident_bytes,
    try_inference,
    try_training,
)
from edge_agent.wire.manifest import TensorSpec
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, cnn2d, save_npz


def test_every_graph_of_a_bundle_is_tried(bundle: Bundle) -> None:
    assert [trial.batch for trial in try_inference(bundle, (1, 7))] == [1, 7]
    for graph in bundle.manifest.training:
        trials = try_training(bundle, graph.name, (1, 5))
        assert [trial.batch for trial in trials] == [1, 5]
        assert all(trial.run_ms > 0 and trial.peak_bytes > 10_000_000 for trial in trials)


def test_random_features_have_the_inputs_shapes_and_types() -> None:
    inputs = [
        TensorSpec(name="x", dtype="float32", shape=["n", 3, "length"]),
        TensorSpec(name="token", dtype="int64", shape=["n", 4]),
        TensorSpec(name="mask", dtype="bool", shape=["n"]),
    ]
    features = random_features(inputs, 5)
    assert {name: value.shape for name, value in features.items()} == {
        "x": (5, 3, FREE_SIZE),
        "token": (5, 4),
        "mask": (5,),
    }
    assert [value.dtype for value in features.values()] == [np.float32, np.int64, np.bool_]
    assert features["x"].std() > 0.5
    assert not features["token"].any()


def test_sizes_that_no_memory_holds_are_refused() -> None:
    for shape in ([2**31], [2**20, 2**20]):
        with pytest.raises(DataError, match=r"input 'x': 1 samples of shape .* bytes"):
            random_features([TensorSpec(name="x", dtype="float32", shape=["n", *shape])], 1)


def test_random_labels_are_of_the_classes(bundle: Bundle) -> None:
    spec = bundle.training_graph("sgd")
    labels = random_labels(spec, 3, 100)
    assert labels is not None
    assert set(labels.tolist()) == {0, 1, 2}
    targets = random_labels(spec, None, 10)
    assert targets is not None
    assert targets.dtype == np.float32
    assert random_labels(spec.model_copy(update={"label_input": None}), 3, 10) is None


@pytest.mark.parametrize(("optimiser", "copies"), [("sgd", 2), ("momentum", 4), ("adam", 6), ("adamw", 6)])
def test_buffers_are_two_sets_of_what_changes(bundle: Bundle, optimiser: str, copies: int) -> None:
    values = sum(value.size for value in bundle.initial_weights().values())
    spec = bundle.training_graph(optimiser)
    assert buffer_bytes(bundle, spec) == 4 * copies * values
    assert buffer_bytes(bundle, spec.model_copy(update={"anchored": True})) == 4 * (copies + 1) * values


def test_statistics_are_counted_and_renewed(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "c.npz", **classified(cnn2d(), 100))
    settings = BuildSettings(["*"], "cross-entropy", statistics="batch", optimisers=("sgd",))
    made = build_bundle(cnn2d(), data, settings, tmp_path / "b")
    values = sum(value.size for value in made.initial_weights().values())
    assert buffer_bytes(made, made.training_graph("sgd")) == 2 * 4 * values
    assert len(try_training(made, "sgd", (1, 3))) == 2


def test_memory_is_that_of_the_process() -> None:
    assert 10_000_000 < resident_bytes("VmRSS") <= resident_bytes("VmHWM")
    with pytest.raises(DataError, match="has no Vm"):
        resident_bytes("VmNone")
