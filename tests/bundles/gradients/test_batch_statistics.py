"""Batch normalisation that trains by the batch, beside torch's: gradients, running statistics, the whole loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_agent.errors import DataError
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.gradients.batch_statistics import use_batch_statistics
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder
from tests.bundles.gradients.operator_twins import (
    Array,
    OperatorGraph,
    assert_near,
    operator_model,
    torch_gradients,
)
from tests.bundles.nets import classified, cnn2d, initialisers, mlp, model_of, save_npz

oracle = pytest.mark.oracle
STATISTICS = ("mean", "variance")
STEPS, BATCH = 20, 16


def rewrite(graph: GraphBuilder, forward: Forward, nodes: Sequence[onnx.NodeProto]) -> Mapping[str, str]:
    return {f"renewed {name}": value for name, value in use_batch_statistics(graph, forward, nodes, "y").items()}


def arrays(batch: int, channels: int, sizes: Sequence[int]) -> tuple[Array, dict[str, Array]]:
    rng = np.random.default_rng(sum(sizes) + channels)
    x = (rng.normal(size=(batch, channels, *sizes)) * rng.uniform(0.5, 3) + rng.normal()).astype(np.float32)
    tensors = {name: rng.normal(size=channels).astype(np.float32) for name in ("w", "b", "mean")}
    return x, tensors | {"variance": rng.uniform(0.5, 2, channels).astype(np.float32)}


def graph_of(x: Array, tensors: Mapping[str, Array], *, threads: int = 1, **attributes: Any) -> OperatorGraph:
    model = operator_model("BatchNormalization", x, tensors, **attributes)
    return OperatorGraph(model, ["x", "w", "b"], threads=threads, rewrite=rewrite)


@oracle
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batch=st.sampled_from([1, 5, 17]),
    channels=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 6), max_size=3),
    momentum=st.sampled_from([0.9, 0.5, 0.0]),
    epsilon=st.sampled_from([1e-5, 1e-2]),
)
def test_gradients_and_statistics_are_torchs(
    batch: int, channels: int, sizes: list[int], momentum: float, epsilon: float
) -> None:
    x, tensors = arrays(batch, channels, sizes)
    if x.size // channels < 4:
        return
    graph = graph_of(x, tensors, momentum=momentum, epsilon=epsilon)
    upstream = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    found = graph.run(x, upstream)
    results = {}
    for dtype in ("float64", "float32"):
        import torch

        running = {name: torch.tensor(tensors[name], dtype=getattr(torch, dtype)) for name in STATISTICS}

        def twin(image: Any, leaves: Any, running: dict[str, Any] = running) -> Any:
            import torch

            means = (running["mean"], running["variance"])
            return torch.nn.functional.batch_norm(
                image, *means, leaves["w"], leaves["b"], training=True, momentum=1 - momentum, eps=epsilon
            )

        trained = {name: tensors[name] for name in ("w", "b")}
        results[dtype] = torch_gradients(twin, x, trained, upstream, dtype)
        results[dtype] |= {f"renewed {name}": running[name].numpy() for name in STATISTICS}
    axes = (0, *range(2, x.ndim))
    deviation = np.sqrt(x.astype(np.float64).var(axes) + epsilon).min()
    amplitude = 30 * max(1.0, float(np.abs(x).max())) / float(deviation)
    for name, value in found.items():
        assert_near(name, value, results["float64"][name], results["float32"][name], amplitude)


def test_a_single_value_a_channel_gives_the_bias_and_leaves_the_statistics() -> None:
    """torch raises; a round's last batch may be of one sample."""
    x, tensors = arrays(1, 3, [])
    found = graph_of(x, tensors).run(x, np.ones_like(x))
    np.testing.assert_allclose(found["y"], tensors["b"][None], atol=1e-4)
    np.testing.assert_array_equal(found["x"], np.zeros_like(x))
    np.testing.assert_array_equal(found["b"], np.ones(3))
    for name in STATISTICS:
        np.testing.assert_array_equal(found[f"renewed {name}"], tensors[name])


def test_a_channel_whose_variance_leaves_float32_keeps_its_statistics() -> None:
    x, tensors = arrays(4, 2, [3])
    x[:, 0] *= 1e30
    found = graph_of(x, tensors).run(x, np.ones_like(x))
    for name in STATISTICS:
        assert found[f"renewed {name}"][0] == tensors[name][0]
        assert found[f"renewed {name}"][1] != tensors[name][1]


def test_what_the_caller_feeds_is_not_written_to() -> None:
    """onnxruntime's operator in training mode writes into its inputs."""
    x, tensors = arrays(6, 3, [4])
    model = operator_model("BatchNormalization", x, tensors)
    fed = [tensor for tensor in model.graph.initializer if tensor.name in STATISTICS]
    graph = OperatorGraph(model, ["w"], rewrite=rewrite)
    proto = graph.proto
    for tensor in fed:
        proto.graph.initializer.remove(tensor)
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, onnx.TensorProto.FLOAT, [3]))
    given = {name: tensors[name].copy() for name in STATISTICS}
    first = graph.run(x, np.ones_like(x))
    outputs = Session("fed", proto.SerializeToString(), {}, threads=1).run({"x": x, "dy": np.ones_like(x), **given})
    for name in STATISTICS:
        np.testing.assert_array_equal(given[name], tensors[name])
        assert any(np.array_equal(value, first[f"renewed {name}"]) for value in outputs.values())
    second = graph.run(x, np.ones_like(x))
    assert all(np.array_equal(value, second[name]) for name, value in first.items())


def test_a_statistic_that_two_nodes_share_is_renewed_by_each_in_turn() -> None:
    x, tensors = arrays(6, 3, [4])
    nodes = [
        helper.make_node("BatchNormalization", ["x", "w", "b", *STATISTICS], ["h"]),
        helper.make_node("BatchNormalization", ["h", "w", "b", *STATISTICS], ["y"]),
    ]
    model = model_of(nodes, tensors, shape=x.shape[1:], output=x.shape[1:])
    found = OperatorGraph(model, ["w"], rewrite=rewrite).run(x, np.ones_like(x))
    wide, mean = x.astype(np.float64), tensors["mean"].astype(np.float64)
    for image in (wide, _normed(wide, tensors)):
        mean = 0.9 * mean + 0.1 * image.mean((0, 2))
    np.testing.assert_allclose(found["renewed mean"], mean, rtol=1e-5)


def _normed(x: Array, tensors: Mapping[str, Array]) -> Array:
    centred = x - x.mean((0, 2), keepdims=True)
    scaled: Array = centred / np.sqrt(centred.var((0, 2), keepdims=True) + 1e-5)
    return scaled * tensors["w"][:, None] + tensors["b"][:, None]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_repeats_bit_for_bit(threads: int) -> None:
    x, tensors = arrays(32, 16, [9, 9])
    graph, upstream = graph_of(x, tensors, threads=threads), np.random.default_rng(3).normal(size=x.shape).astype("f4")
    runs = [graph.run(x, upstream) for _ in range(20)]
    for name, value in runs[0].items():
        assert {run[name].tobytes() for run in runs} == {value.tobytes()}, name


def test_a_statistic_that_is_computed_is_named() -> None:
    x, tensors = arrays(4, 3, [4])
    nodes = [
        helper.make_node("Abs", ["variance"], ["positive"]),
        helper.make_node("BatchNormalization", ["x", "w", "b", "mean", "positive"], ["y"], name="norm"),
    ]
    model = model_of(nodes, tensors, shape=x.shape[1:], output=x.shape[1:])
    with pytest.raises(DataError, match=r"node 'norm' \(BatchNormalization\): running statistic 'positive'"):
        OperatorGraph(model, ["w"], rewrite=rewrite)


def test_training_mode_of_the_file_is_named() -> None:
    x, tensors = arrays(4, 3, [4])
    model = operator_model("BatchNormalization", x, tensors, training_mode=1, extra_outputs=2)
    with pytest.raises(DataError, match=r"node 'node' \(BatchNormalization\): attribute training_mode=1"):
        OperatorGraph(model, ["w"])
    with pytest.raises(DataError, match=r"node 'node' \(BatchNormalization\): attribute training_mode=1"):
        OperatorGraph(model, ["w"], rewrite=rewrite)


def test_a_model_without_batch_normalisation_is_refused(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "c.npz", **classified(mlp(), 60))
    with pytest.raises(DataError, match="no BatchNormalization node"):
        build_bundle(mlp(), data, BuildSettings(["*"], "cross-entropy", statistics="batch"), tmp_path / "b")


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@oracle
def test_twenty_steps_and_their_statistics_are_torchs(optimiser: str, tmp_path: Path) -> None:
    """Through the bundle: statistics are weights, marked as such, renewed by the step and served after a hot swap."""
    model = cnn2d()
    data = classified(model, STEPS * BATCH)
    calibration = save_npz(tmp_path / "c.npz", **classified(model, 64, seed=6))
    bundle = build_bundle(model, calibration, BuildSettings(["*"], "cross-entropy", statistics="batch"), tmp_path / "b")
    assert {spec.name for spec in bundle.manifest.trainable if spec.statistic} == {"n.mean", "n.var"}
    spec = bundle.training_graph(optimiser)
    assert spec.statistics == ["n.mean", "n.var"]
    assert not set(spec.trainable) & set(spec.statistics)
    step = TrainingStep(bundle, optimiser, bundle.initial_weights())
    rows = [slice(number * BATCH, (number + 1) * BATCH) for number in range(STEPS)]
    for part in rows:
        step.step({"x": data["x"][part]}, data["label"][part], learning_rate=0.01)
    exact, narrow = (_torch_steps(model, optimiser, data, rows, dtype) for dtype in ("float64", "float32"))
    weights = step.weights()
    assert set(weights) == set(exact) - {"logits"}
    for name, value in weights.items():
        assert_near(name, value, exact[name], narrow[name], amplitude=20 if optimiser == "adam" else 1)
    served = InferenceModel(bundle, weights).run({"x": data["x"][:8]})["y"]
    np.testing.assert_allclose(served, exact["logits"], rtol=0, atol=1e-4 * np.abs(exact["logits"]).max())


def _torch_steps(
    model: onnx.ModelProto, optimiser: str, data: Mapping[str, Array], rows: Sequence[slice], dtype: str
) -> dict[str, Array]:
    import torch

    f, kind = torch.nn.functional, getattr(torch, dtype)
    w: dict[str, Any] = {name: torch.tensor(value, dtype=kind) for name, value in initialisers(model).items()}
    trained = [value.requires_grad_() for name, value in w.items() if name not in ("n.mean", "n.var")]
    x = torch.tensor(data["x"], dtype=kind)

    def forward(image: Any, *, training: bool) -> Any:
        first = f.conv2d(image, w["a.w"], padding=1)
        normed = f.batch_norm(first, w["n.mean"], w["n.var"], w["n.scale"], w["n.bias"], training, 0.1, 1e-3)
        pooled = f.max_pool2d(f.relu(normed), 3, stride=2, padding=1)
        second = f.conv2d(pooled, w["b.w"], w["b.b"], stride=2, padding=1).sigmoid()
        return f.linear(second.mean((2, 3)), w["c.w"], w["c.b"])

    steps: Any = torch.optim.SGD(trained, 0.01) if optimiser == "sgd" else torch.optim.Adam(trained, 0.01)
    for part in rows:
        steps.zero_grad()
        loss: Any = f.cross_entropy(forward(x[part], training=True), torch.tensor(data["label"][part]))
        loss.backward()
        steps.step()
    with torch.no_grad():
        logits = forward(x[:8], training=False).numpy()
    return {name: value.detach().numpy() for name, value in w.items()} | {"logits": logits}


def test_a_step_that_the_guard_skips_leaves_the_statistics(tmp_path: Path) -> None:
    model = cnn2d()
    calibration = save_npz(tmp_path / "c.npz", **classified(model, 64))
    chosen = BuildSettings(["*"], "cross-entropy", statistics="batch")
    bundle = build_bundle(model, calibration, chosen, tmp_path / "b")
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    data = classified(model, 8)
    step.step({"x": data["x"]}, data["label"], learning_rate=1e18)
    for name, value in step.weights().items():
        assert np.array_equal(value, bundle.initial_weights()[name]), name
    step.step({"x": data["x"]}, data["label"], learning_rate=0.1)
    assert not np.array_equal(step.weights()["n.mean"], bundle.initial_weights()["n.mean"])


def test_a_batch_of_one_trains(tmp_path: Path) -> None:
    model = cnn2d()
    calibration = save_npz(tmp_path / "c.npz", **classified(model, 64))
    chosen = BuildSettings(["*"], "cross-entropy", statistics="batch")
    bundle = build_bundle(model, calibration, chosen, tmp_path / "b")
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    data = classified(model, 1)
    assert np.isfinite(step.step({"x": data["x"]}, data["label"], learning_rate=0.1))
    assert all(np.isfinite(value).all() for value in step.weights().values())
