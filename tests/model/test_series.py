"""Several steps in one call are the single steps, bit for bit, or are taken singly."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.series import SERIES_MAX_BYTES, STEPS_AT_ONCE
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, conv1d, drawn, mlp, model_of, regression, save_npz

STEPS, ROWS = 7, 12
RATES = [0.02 * (1 + place % 3) for place in range(STEPS)]
SETTINGS = BuildSettings(["*"], "cross-entropy")


def built(folder: Path, model: onnx.ModelProto, settings: BuildSettings, label: NDArray[Any] | None = None) -> Bundle:
    data = classified(model, 240)
    file = save_npz(folder / "c.npz", x=data["x"], label=data["label"] if label is None else label)
    return build_bundle(model, file, settings, folder / "bundle")


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built(tmp_path_factory.mktemp("dense"), mlp(), SETTINGS)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of many kinds of graphs, two optimisers each."""
    settings = BuildSettings(
        ["*"],
        "cross-entropy",
        optimisers=["momentum", "adam"],
        subsets={"last": ["b.*"]},
        label_free=("entropy", "pseudo-label"),
        head=True,
        weight_decay=True,
        proximal=True,
        label_smoothing=0.1,
        run_time_weights=True,
        ignore_index=2,
    )
    return built(tmp_path_factory.mktemp("many"), mlp(), settings)


def batches(bundle: Bundle, label: NDArray[Any] | None, seed: int = 0) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """STEPS batches of ROWS rows."""
    rng = np.random.default_rng(seed)
    spec = bundle.manifest.inputs[0]
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    x = rng.normal(size=(STEPS, ROWS, *sizes)).astype(np.float32)
    if label is not None and bundle.manifest.classes is None:
        return {spec.name: x}, rng.normal(size=(STEPS, ROWS)).astype(np.float32)
    return {spec.name: x}, rng.integers(0, bundle.manifest.classes or 1, (STEPS, ROWS)) if label is not None else None


LABELLED: NDArray[Any] | None = np.zeros(1)


def both(
    bundle: Bundle, graph: str, features: Mapping[str, Any], labels: NDArray[Any] | None, threads: int = 1, **more: Any
) -> tuple[list[bytes], list[bytes]]:
    """All that single steps and steps taken together leave: weights, losses, reports, skipped, and one step later."""
    ends = []
    for together in (False, True):
        step = TrainingStep(bundle, graph, bundle.initial_weights(), threads=threads)
        if together:
            taken = step.steps(features, labels, learning_rates=RATES, **more)
            losses, skipped = list(taken.losses), taken.skipped
        else:
            losses, skipped = [], 0
            for place, rate in enumerate(RATES):
                batch = {name: value[place] for name, value in features.items()}
                told = None if labels is None else labels[place]
                losses.append(step.step(batch, told, learning_rate=rate, **more))
                skipped += round(step.reports["skipped"])
        said = np.array([*losses, skipped, *step.reports.values()], np.float64)
        first = {name: value[0] for name, value in features.items()}
        step.step(first, None if labels is None else labels[0], learning_rate=0.01, **more)
        ends.append([said.tobytes(), *(value.tobytes() for _, value in sorted(step.weights().items()))])
    return ends[0], ends[1]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam", "adamw"])
def test_every_optimiser_gives_the_single_steps(dense: Bundle, optimiser: str, threads: int) -> None:
    assert dense.training_graph(optimiser).series == f"train/{optimiser}.series.onnx"
    features, labels = batches(dense, LABELLED)
    alone, together = both(dense, optimiser, features, labels, threads)
    assert together == alone
    assert all(both(dense, optimiser, features, labels, threads)[1] == together for _ in range(3))


def normalised() -> onnx.ModelProto:
    """A dense net with batch normalisation."""
    weights = drawn(np.random.default_rng(4), a_w=(8, 5), b_w=(3, 8))
    norm = {"s": np.ones(8), "o": np.zeros(8), "mean": np.full(8, 0.1), "var": np.full(8, 0.7)}
    nodes = [
        helper.make_node("Gemm", ["x", "a.w"], ["g"], transB=1),
        helper.make_node("BatchNormalization", ["g", "s", "o", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Gemm", ["r", "b.w"], ["y"], transB=1),
    ]
    plain = {name: value.astype(np.float32) for name, value in norm.items()}
    return model_of(nodes, weights | plain, shape=[5], output=[3])


@pytest.mark.parametrize(
    "graph", ["adam", "momentum", "last-adam", "head-adam", "head-momentum", "prox-adam", "prox-last-momentum"]
)
def test_every_kind_of_graph_gives_the_single_steps(many: Bundle, graph: str) -> None:
    spec = many.training_graph(graph)
    features, labels = batches(many, LABELLED)
    if spec.embedding is not None:
        features = {spec.embedding: np.random.default_rng(2).normal(size=(STEPS, ROWS, 8)).astype(np.float32)}
    scalars = {"weight_decay": 0.01, **({"proximal": 0.1} if spec.anchored else {})}
    weights = {"class_weight": np.array([1.0, 0.5, 2.0], np.float32)}
    alone, together = both(many, graph, features, labels, scalars=scalars, class_inputs=weights)
    assert together == alone
    assert spec.series is not None


@pytest.mark.parametrize("graph", ["entropy-adam", "pseudo-label-momentum"])
def test_steps_without_labels_are_the_single_ones(many: Bundle, graph: str) -> None:
    features, _ = batches(many, None)
    prior = {"class_prior": np.array([0.5, 0.3, 0.2], np.float32)}
    alone, together = both(many, graph, features, None, class_inputs=prior, scalars={})
    assert together == alone
    assert many.training_graph(graph).series is not None


def sized() -> onnx.ModelProto:
    """A dense net with a constant in a node, and a value shaped by the size of the batch."""
    weights = drawn(np.random.default_rng(4), a_w=(5, 8), b_w=(8, 3)) | {"rest": np.array([-1], np.int64)}
    nodes = [
        helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2, np.float32))),
        helper.make_node("MatMul", ["x", "a.w"], ["m"]),
        helper.make_node("Mul", ["m", "two"], ["t"]),
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["t", "shape"], ["s"]),
        helper.make_node("Tanh", ["s"], ["h"]),
        helper.make_node("MatMul", ["h", "b.w"], ["y"]),
    ]
    return model_of(nodes, weights, shape=[5], output=[3])


@pytest.mark.parametrize(
    ("model", "loss", "statistics"),
    [
        (regression, "huber", "frozen"),
        (normalised, "cross-entropy", "batch"),
        (sized, "cross-entropy", "frozen"),
    ],
)
def test_other_nets_give_the_single_steps(
    tmp_path: Path, model: Callable[[], onnx.ModelProto], loss: Any, statistics: Any
) -> None:
    label = np.random.default_rng(1).normal(size=240).astype(np.float32) if loss == "huber" else None
    bundle = built(tmp_path, model(), BuildSettings(["*"], loss, statistics=statistics, optimisers=["sgd"]), label)
    alone, together = both(bundle, "sgd", *batches(bundle, LABELLED))
    assert together == alone
    assert bundle.training_graph("sgd").series is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_the_guard_skips_is_skipped_among_others(dense: Bundle, bad: float) -> None:
    features, labels = batches(dense, LABELLED)
    features["x"][3, 5, 1] = bad
    alone, together = both(dense, "adam", features, labels)
    assert together == alone
    step = TrainingStep(dense, "adam", dense.initial_weights())
    assert step.steps(features, labels, learning_rates=RATES).skipped == 1


@pytest.mark.parametrize("bound", ["clip_norm", "update_norm_cap"])
def test_a_bound_holds_for_every_step(dense: Bundle, bound: str) -> None:
    features, labels = batches(dense, LABELLED)
    alone, together = both(dense, "momentum", features, labels, scalars={bound: 1e-3})
    assert together == alone
    step = TrainingStep(dense, "momentum", dense.initial_weights())
    step.steps(features, labels, learning_rates=RATES, scalars={bound: 1e-3})
    assert together != both(dense, "momentum", features, labels)[1]


def test_a_net_with_convolutions_takes_them_singly(tmp_path: Path) -> None:
    bundle = built(tmp_path, conv1d(), BuildSettings(["*"], "cross-entropy", optimisers=["sgd"]))
    step = TrainingStep(bundle, "sgd", bundle.initial_weights())
    assert step.spec.series is None
    assert step.steps_at_once(100) == 1
    features, labels = batches(bundle, LABELLED)
    alone, together = both(bundle, "sgd", features, labels)
    assert together == alone
    with pytest.raises(DataError, match="'sgd' has no graph of several steps"):
        step.open_series()


def test_calls_of_other_sizes_alternate_with_single_steps(dense: Bundle) -> None:
    features, labels = batches(dense, LABELLED)
    assert labels is not None
    step, other = (TrainingStep(dense, "adam", dense.initial_weights()) for _ in range(2))
    for rows in (12, 5, 9, 3, 7, 12, 4):
        for first, last in ((0, 5), (5, 6), (3, 7)):
            part = slice(first, last)
            step.steps({"x": features["x"][part, :rows]}, labels[part, :rows], learning_rates=RATES[part])
            for place in range(first, last):
                other.step({"x": features["x"][place, :rows]}, labels[place, :rows], learning_rate=RATES[place])
    assert {n: v.tobytes() for n, v in step.weights().items()} == {n: v.tobytes() for n, v in other.weights().items()}


def test_how_many_at_once_follows_the_size_of_a_batch(dense: Bundle) -> None:
    step = TrainingStep(dense, "sgd", dense.initial_weights())
    assert step.steps_at_once(640) == STEPS_AT_ONCE
    assert step.steps_at_once(SERIES_MAX_BYTES // 3) == 3
    assert step.steps_at_once(2 * SERIES_MAX_BYTES) == 1


def test_what_is_unfit_is_named_and_changes_nothing(dense: Bundle) -> None:
    features, labels = batches(dense, LABELLED)
    assert labels is not None
    step = TrainingStep(dense, "sgd", dense.initial_weights())
    before = {name: value.tobytes() for name, value in step.weights().items()}
    outside = labels.copy()
    outside[4, 4] = 3
    for fed, told, rates, words in (
        (features, outside, RATES, "label 3 is outside"),
        (features, labels[:3], RATES, "7 batches of a size are needed"),
        (features, labels.reshape(-1), RATES, "7 batches of a size are needed"),
        ({"x": features["x"][:4]}, labels, RATES, "'x' has shape .*7 batches of a size are needed"),
        ({"x": features["x"].astype("f8")}, labels, RATES, "'x' is float64"),
        (features, labels, [*RATES[:-1], 0.0], "learning rate 0.0 is not positive"),
        (features, None, RATES, "needs labels"),
        (features, labels, [], "0 batches"),
    ):
        with pytest.raises(DataError, match=words):
            step.steps(fed, told, learning_rates=rates)
    assert {name: value.tobytes() for name, value in step.weights().items()} == before
