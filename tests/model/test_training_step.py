"""Training steps: exact optimisers, checked labels, no shared memory."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import COPIED_MAX_BYTES, TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, conv1d, mlp, model_of, save_npz

X, LABELS = (classified(mlp(), 40)[name] for name in ("x", "label"))


@pytest.fixture
def line(tmp_path: Path) -> Bundle:
    """y = w x by mean squared error."""
    w = np.array([[0.5], [-1.0]], dtype=np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, shape=[2], output=[1])
    x, label = line_data(64)
    data = save_npz(tmp_path / "c.npz", x=x, label=label)
    return build_bundle(model, data, BuildSettings(["w"], "mse"), tmp_path / "line")


def line_data(rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    return x, (x @ np.array([2.0, 1.0]) + 0.1 * rng.normal(size=rows)).astype(np.float32)


def slope(w: NDArray[Any], x: NDArray[Any], label: NDArray[Any]) -> NDArray[Any]:
    gradient: NDArray[Any] = 2 * x.T @ (x @ w - label[:, None]) / len(x)
    return gradient


def test_momentum_is_the_heavy_ball_in_float64(line: Bundle) -> None:
    x, label = line_data(16)
    step = TrainingStep(line, "momentum", line.initial_weights())
    w, velocity = line.initial_weights()["w"].astype("f8"), np.zeros((2, 1))
    for _ in range(30):
        loss = step.step({"x": x}, label, learning_rate=0.02)
        assert loss == pytest.approx(float(np.square(x @ w - label[:, None]).mean()), rel=1e-5)
        velocity = 0.9 * velocity + slope(w, x, label)
        w -= 0.02 * velocity
    np.testing.assert_allclose(step.weights()["w"], w, rtol=1e-5)


def test_adam_is_the_published_one_in_float64(line: Bundle) -> None:
    x, label = line_data(16)
    step = TrainingStep(line, "adam", line.initial_weights())
    w, first, second = line.initial_weights()["w"].astype("f8"), np.zeros((2, 1)), np.zeros((2, 1))
    for t in range(1, 31):
        step.step({"x": x}, label, learning_rate=0.01)
        gradient = slope(w, x, label)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        w -= 0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(step.weights()["w"], w, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("graph", ["sgd", "momentum", "adam", "adamw"])
def test_steps_repeat_bit_for_bit_and_stay_finite(conv_bundle: Bundle, graph: str, threads: int) -> None:
    data = classified(conv1d(), 80)
    ends = []
    for _ in range(2):
        step = TrainingStep(conv_bundle, graph, conv_bundle.initial_weights(), threads=threads)
        for number in range(40):
            rows = np.arange(number, number + 32) % 80
            loss = step.step({"x": data["x"][rows]}, data["label"][rows], learning_rate=0.003)
            assert np.isfinite(loss)
        ends.append(step.weights())
    for name, value in ends[0].items():
        assert np.isfinite(value).all()
        assert value.tobytes() == ends[1][name].tobytes()


def test_training_lowers_the_loss_with_any_batch_size(bundle: Bundle) -> None:
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    first = step.step({"x": X}, LABELS, learning_rate=0.01)
    for number in range(200):
        rows = slice(0, 1 + number % 40)
        step.step({"x": X[rows]}, LABELS[rows], learning_rate=0.01)
    assert step.step({"x": X}, LABELS, learning_rate=0.01) < 0.5 * first


def test_batches_of_any_size_layout_and_label_type_train_as_their_plain_copies(bundle: Bundle) -> None:
    """Small batches are copied to memory that stays bound, large ones are bound; what was given is free to change."""
    one, other = (TrainingStep(bundle, "adam", bundle.initial_weights()) for _ in range(2))
    rows = 1 + COPIED_MAX_BYTES // X[0].nbytes
    large, many = np.resize(X, (rows, *X.shape[1:])), np.resize(LABELS, rows)
    batches = [(X[:5], LABELS[:5]), (large, many), (X[:5], LABELS[:5]), (X[:7], LABELS[:7]), (X[7:14], LABELS[7:14])]
    for x, labels in [*batches, (large, many), (large, many), *batches]:
        turned, borrowed = np.asfortranarray(x), labels.astype(np.int16)[:, None]
        loss = one.step({"x": turned}, borrowed, learning_rate=0.01)
        turned[...], borrowed[...] = np.nan, 0
        assert loss == other.step({"x": x.copy()}, labels.astype(np.int64), learning_rate=0.01)
    assert all(np.array_equal(value, other.weights()[name]) for name, value in one.weights().items())


def test_weights_are_copies_and_complete(bundle: Bundle) -> None:
    given = bundle.initial_weights()
    step = TrainingStep(bundle, "sgd", given)
    step.step({"x": X}, LABELS, learning_rate=0.1)
    after = step.weights()
    assert set(after) == set(given)
    assert all(np.array_equal(given[name], value) for name, value in bundle.initial_weights().items())
    kept = {name: value.copy() for name, value in after.items()}
    after["b.w"] += 1
    step.step({"x": X}, LABELS, learning_rate=0.1)
    assert not np.array_equal(step.weights()["b.w"], after["b.w"])
    assert not np.array_equal(step.weights()["b.w"], kept["b.w"])


def test_tensor_that_the_graph_does_not_train_stays_as_given(bundle: Bundle, tmp_path: Path) -> None:
    """A graph may train a part; the bundle's other trainable tensors are its constants."""
    data = save_npz(tmp_path / "d.npz", **classified(mlp(), 80))
    part = build_bundle(mlp(), data, BuildSettings(["b.*"], "cross-entropy"), tmp_path / "part")
    files = {name: bundle.read(name) for name in bundle.manifest.files} | {
        "train/head.onnx": part.read("train/sgd.onnx")
    }
    spec = part.training_graph("sgd").model_copy(update={"name": "head", "file": "train/head.onnx"})
    manifest = bundle.manifest.model_copy(
        update={"training": [*bundle.manifest.training, spec], "files": file_digests(files)}
    )
    both = write_bundle(tmp_path / "both", manifest, files)
    step = TrainingStep(both, "head", both.initial_weights())
    step.step({"x": X}, LABELS, learning_rate=0.1)
    assert np.array_equal(step.weights()["a.w"], both.initial_weights()["a.w"])
    assert not np.array_equal(step.weights()["b.w"], both.initial_weights()["b.w"])


@pytest.mark.parametrize(
    ("rows", "labels", "problem"),
    [
        (3, np.array([0, 1, 3]), r"label 3 is outside 0..2"),
        (3, np.array([0, -1, 2]), r"label -1 is outside 0..2"),
        (3, np.array([0.0, 1.0, 2.0]), "labels are float64, whole class numbers are needed"),
        (3, np.array([True, False, True]), "labels are bool"),
        (3, np.array([0, 1]), r"labels have shape \[2\], \[3\] is needed"),
        (0, np.array([], dtype=np.int64), "the batch is empty"),
    ],
)
def test_unfit_labels_are_refused_and_change_nothing(
    bundle: Bundle, rows: int, labels: NDArray[Any], problem: str
) -> None:
    step, other = (TrainingStep(bundle, "adam", bundle.initial_weights()) for _ in range(2))
    step.step({"x": X}, LABELS, learning_rate=0.01)
    with pytest.raises(DataError, match=problem):
        step.step({"x": X[:rows]}, labels, learning_rate=0.01)
    step.step({"x": X}, LABELS, learning_rate=0.01)
    for _ in range(2):
        other.step({"x": X}, LABELS, learning_rate=0.01)
    assert all(np.array_equal(step.weights()[name], value) for name, value in other.weights().items())


@pytest.mark.parametrize("label", [np.nan, np.inf])
def test_target_that_is_not_finite_is_refused(line: Bundle, label: float) -> None:
    with pytest.raises(DataError, match="a label is not finite"):
        TrainingStep(line, "sgd", line.initial_weights()).step(
            {"x": np.zeros((1, 2), "f4")}, np.array([label]), learning_rate=0.1
        )


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf])
def test_unfit_learning_rate_is_refused(bundle: Bundle, rate: float) -> None:
    with pytest.raises(DataError, match="learning rate"):
        TrainingStep(bundle, "sgd", bundle.initial_weights()).step({"x": X}, LABELS, learning_rate=rate)


def test_unfit_weights_and_unknown_graph_are_refused(bundle: Bundle) -> None:
    weights = bundle.initial_weights()
    with pytest.raises(DataError, match="no training graph 'lamb'"):
        TrainingStep(bundle, "lamb", weights)
    weights["b.b"][0] = np.nan
    with pytest.raises(DataError, match=r"tensor 'b.b' is not finite"):
        TrainingStep(bundle, "sgd", weights)


def test_run_that_fails_is_a_data_error_and_changes_nothing(bundle: Bundle, tmp_path: Path) -> None:
    """A graph that insists on four labels."""
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    graph = onnx.load_from_string(files["train/sgd.onnx"])
    for node in graph.graph.node:
        node.input[:] = ["four" if name == "label" else name for name in node.input]
    graph.graph.initializer.append(helper.make_tensor("size", onnx.TensorProto.INT64, [1], [4]))
    graph.graph.node.insert(0, helper.make_node("Reshape", ["label", "size"], ["four"]))
    files["train/sgd.onnx"] = graph.SerializeToString()
    manifest = bundle.manifest.model_copy(update={"files": file_digests(files)})
    stubborn = write_bundle(tmp_path / "stubborn", manifest, files)
    step = TrainingStep(stubborn, "sgd", stubborn.initial_weights())
    with pytest.raises(DataError, match=r"train/sgd.onnx cannot run"):
        step.step({"x": X[:3]}, LABELS[:3], learning_rate=0.1)
    assert all(np.array_equal(stubborn.initial_weights()[name], value) for name, value in step.weights().items())
    assert np.isfinite(step.step({"x": X[:4]}, LABELS[:4], learning_rate=0.1))


def test_graph_that_is_not_as_the_manifest_says_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    graph = onnx.load_from_string(files["train/sgd.onnx"])
    next(value for value in graph.graph.input if value.name == "label").name = "target"
    for node in graph.graph.node:
        node.input[:] = ["target" if name == "label" else name for name in node.input]
    files["train/sgd.onnx"] = graph.SerializeToString()
    manifest = bundle.manifest.model_copy(update={"files": file_digests(files)})
    odd = write_bundle(tmp_path / "odd", manifest, files)
    with pytest.raises(DataError, match=r"train/sgd.onnx: input 'label' is not as the manifest says"):
        TrainingStep(odd, "sgd", odd.initial_weights())


def rich(folder: Path, **settings: Any) -> Bundle:
    """The dense net with what else a bundle may have."""
    data = save_npz(folder / "rich.npz", **classified(mlp(), 80))
    chosen = {"optimisers": ("sgd",), **settings}
    return build_bundle(mlp(), data, BuildSettings(["*"], "cross-entropy", **chosen), folder / "rich")


def test_scalars_are_the_graphs_and_hold_for_one_step(bundle: Bundle) -> None:
    free, clipped = (TrainingStep(bundle, "momentum", bundle.initial_weights()) for _ in range(2))
    free.step({"x": X}, LABELS, learning_rate=0.1)
    clipped.step({"x": X}, LABELS, learning_rate=0.1, scalars={"clip_norm": 1e-3, "momentum": 0.5})
    assert clipped.reports["update_norm"] == pytest.approx(1e-4, rel=1e-3)
    assert clipped.reports["gradient_norm"] == free.reports["gradient_norm"]
    clipped.step({"x": X}, LABELS, learning_rate=0.1)
    assert clipped.reports["update_norm"] > 1e-2
    assert clipped.reports["skipped"] == 0


@pytest.mark.parametrize(
    ("scalars", "problem"),
    [
        ({"clip": 1.0}, r"training graph 'adam' has no scalar 'clip' to set \(it has 'clip_norm', 'update_norm_cap'\)"),
        ({"learning_rate": 1.0}, "no scalar 'learning_rate'"),
        ({"clip_norm": -1.0}, "scalar 'clip_norm' is -1.0, outside 0 and above"),
        ({"update_norm_cap": float("nan")}, "scalar 'update_norm_cap' is nan"),
    ],
)
def test_unfit_scalars_are_named_and_change_nothing(bundle: Bundle, scalars: dict[str, float], problem: str) -> None:
    step, other = (TrainingStep(bundle, "adam", bundle.initial_weights()) for _ in range(2))
    with pytest.raises(DataError, match=problem):
        step.step({"x": X}, LABELS, learning_rate=0.01, scalars=scalars)
    for each in (step, other):
        each.step({"x": X}, LABELS, learning_rate=0.01)
    assert all(np.array_equal(step.weights()[name], value) for name, value in other.weights().items())


@pytest.mark.parametrize("graph", ["sgd", "momentum", "adam", "adamw"])
def test_features_that_are_not_finite_leave_everything_as_it_was(bundle: Bundle, graph: str) -> None:
    step, other = (TrainingStep(bundle, graph, bundle.initial_weights()) for _ in range(2))
    step.step({"x": np.full_like(X, np.nan)}, LABELS, learning_rate=0.01)
    assert step.reports["skipped"] == 1
    assert all(np.array_equal(bundle.initial_weights()[name], value) for name, value in step.weights().items())
    for each in (step, other):
        each.step({"x": X}, LABELS, learning_rate=0.01)
    assert all(np.array_equal(step.weights()[name], value) for name, value in other.weights().items())


def test_ignored_labels_are_passed_and_others_named(tmp_path: Path) -> None:
    bundle = rich(tmp_path, ignore_index=-100, class_weights=(1.0, 2.0, 0.5), label_smoothing=0.1)
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    labels = LABELS.copy()
    labels[::2] = -100
    with_ignored = step.step({"x": X}, labels, learning_rate=0.1)
    alone = TrainingStep(bundle, "sgd", bundle.initial_weights())
    assert alone.step({"x": X[1::2]}, LABELS[1::2], learning_rate=0.1) == pytest.approx(with_ignored, rel=1e-6)
    assert step.step({"x": X}, np.full(len(X), -100), learning_rate=0.1) == 0.0
    assert step.reports["skipped"] == 1
    with pytest.raises(DataError, match=r"label -99 is outside 0..2 and not -100, which is ignored"):
        step.step({"x": X[:1]}, np.array([-99]), learning_rate=0.1)


def test_class_weights_at_run_time_stay_until_given_again(tmp_path: Path) -> None:
    bundle = rich(tmp_path, run_time_weights=True)
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    assert step.spec.class_inputs == ["class_weight"]
    equal = step.step({"x": X}, LABELS, learning_rate=1e-9)
    weighed = step.step({"x": X}, LABELS, learning_rate=1e-9, class_inputs={"class_weight": np.array([9, 1, 0])})
    assert weighed != pytest.approx(equal, rel=1e-3)
    assert step.step({"x": X}, LABELS, learning_rate=1e-9) == pytest.approx(weighed, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"class_weight": np.ones(2)}, r"'class_weight' has shape \[2\], \[3\] is needed"),
        ({"class_weight": np.zeros(3)}, "'class_weight' must be finite, not negative and not all zero"),
        ({"class_weight": np.array([1, np.nan, 1])}, "must be finite"),
        ({"prior": np.ones(3)}, r"has no class input 'prior' \(it has 'class_weight'\)"),
    ],
)
def test_unfit_class_inputs_are_named(tmp_path: Path, given: dict[str, NDArray[Any]], problem: str) -> None:
    bundle = rich(tmp_path, run_time_weights=True)
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    with pytest.raises(DataError, match=problem):
        step.step({"x": X}, LABELS, learning_rate=0.1, class_inputs=given)


def test_graphs_without_labels_train_on_features_alone(tmp_path: Path) -> None:
    bundle = rich(tmp_path, label_free=("entropy", "pseudo-label"), optimisers=("momentum",))
    assert [graph.name for graph in bundle.manifest.training] == [
        "momentum",
        "entropy-momentum",
        "pseudo-label-momentum",
    ]
    for name in ("entropy-momentum", "pseudo-label-momentum"):
        step = TrainingStep(bundle, name, bundle.initial_weights())
        prior = {"class_prior": np.array([3.0, 1.0, 1.0])}
        losses = [step.step({"x": X}, learning_rate=0.05, class_inputs=prior) for _ in range(20)]
        assert losses[-1] < losses[0]
        with pytest.raises(DataError, match="the batch is empty"):
            step.step({"x": X[:0]}, learning_rate=0.05)
    unsure = TrainingStep(bundle, "pseudo-label-momentum", bundle.initial_weights())
    unsure.step({"x": X}, learning_rate=0.05)
    before = unsure.weights()
    unsure.step({"x": X}, learning_rate=0.05, scalars={"confidence": 1.0})
    assert unsure.reports["skipped"] == 1
    assert all(np.array_equal(before[name], value) for name, value in unsure.weights().items())
    with pytest.raises(DataError, match="training graph 'momentum' needs labels"):
        TrainingStep(bundle, "momentum", bundle.initial_weights()).step({"x": X}, learning_rate=0.05)


def test_proximal_term_pulls_to_the_weights_given_at_first(tmp_path: Path) -> None:
    bundle = rich(tmp_path, proximal=True, optimisers=("sgd",), subsets={"last": ["b.*"]})
    assert [graph.name for graph in bundle.manifest.training] == ["sgd", "last-sgd", "prox-sgd", "prox-last-sgd"]
    ends = []
    for strength in (0.0, 5.0):
        step = TrainingStep(bundle, "prox-sgd", bundle.initial_weights())
        for _ in range(20):
            step.step({"x": X}, LABELS, learning_rate=0.1, scalars={"proximal": strength})
        ends.append(sum(float(np.square(v - bundle.initial_weights()[n]).sum()) for n, v in step.weights().items()))
    assert ends[1] < 0.5 * ends[0]


def test_subset_trains_its_tensors_alone(tmp_path: Path) -> None:
    bundle = rich(tmp_path, optimisers=("momentum",), subsets={"last": ["b.*", "!b.b"]})
    step = TrainingStep(bundle, "last-momentum", bundle.initial_weights())
    step.step({"x": X}, LABELS, learning_rate=0.1)
    changed = {n for n, v in step.weights().items() if not np.array_equal(v, bundle.initial_weights()[n])}
    assert changed == {"b.w"}


def test_load_begins_anew_from_other_weights(bundle: Bundle) -> None:
    step, fresh = (TrainingStep(bundle, "adam", bundle.initial_weights()) for _ in range(2))
    for _ in range(3):
        step.step({"x": X}, LABELS, learning_rate=0.01)
    step.load(bundle.initial_weights())
    for each in (step, fresh):
        each.step({"x": X}, LABELS, learning_rate=0.01)
    assert all(np.array_equal(step.weights()[name], value) for name, value in fresh.weights().items())
    unfit = bundle.initial_weights() | {"a.w": np.full((5, 8), np.nan, np.float32)}
    with pytest.raises(DataError, match=r"tensor 'a.w' is not finite"):
        step.load(unfit)


@pytest.mark.parametrize("loss", ["mae", "huber"])
def test_regressions_check_targets(tmp_path: Path, loss: Any) -> None:
    w = np.array([[0.5], [-1.0]], dtype=np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, shape=[2], output=[1])
    x, label = line_data(64)
    data = save_npz(tmp_path / "c.npz", x=x, label=label)
    bundle = build_bundle(model, data, BuildSettings(["w"], loss, huber_delta=0.5), tmp_path / "line")
    assert (bundle.manifest.kind, bundle.manifest.huber_delta) == ("regression", 0.5)
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    losses = [step.step({"x": x}, label, learning_rate=0.05) for _ in range(100)]
    assert losses[-1] < 0.3 * losses[0]
    for bad in (np.inf, 1e39):
        with pytest.raises(DataError, match="a label is not finite"):
            step.step({"x": x[:1]}, np.array([bad]), learning_rate=0.1)


def test_one_logit_is_a_classification_of_two(tmp_path: Path) -> None:
    weights = {"w": np.array([[0.5], [-1.0]], dtype=np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["y"])]
    model = model_of(nodes, weights, shape=[2], output=[1])
    x, value = line_data(64)
    label = (value > 0).astype(np.int64)
    data = save_npz(tmp_path / "c.npz", x=x, label=label)
    bundle = build_bundle(model, data, BuildSettings(["w"], "binary-cross-entropy"), tmp_path / "b")
    assert (bundle.manifest.kind, bundle.manifest.classes) == ("classification", 2)
    served = InferenceModel(bundle, bundle.initial_weights()).run({"x": x})["y"]
    np.testing.assert_allclose(served, x @ weights["w"], rtol=1e-5)
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    losses = [step.step({"x": x}, label, learning_rate=0.5) for _ in range(100)]
    assert losses[-1] < 0.5 * losses[0]
    with pytest.raises(DataError, match=r"label 2 is outside 0..1"):
        step.step({"x": x[:1]}, np.array([2]), learning_rate=0.5)
