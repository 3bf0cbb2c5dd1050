"""Losses and their gradients beside torch's in float64."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from edge_agent.drift.losses import sample_losses
from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.losses import CLASS_WEIGHT, LABEL, LOSS, Weighing
from server_bridge.bundles.gradients.objective import Objective, write_objective
from tests.bundles.nets import Array, model_of

pytestmark = pytest.mark.oracle

CLASSES = 4
WEIGHTS = (0.2, 1.0, 3.0, 0.0)
WEIGHINGS = [
    Weighing(),
    Weighing(class_weights=WEIGHTS),
    Weighing(smoothing=0.1),
    Weighing(ignored=-100),
    Weighing(ignored=2),
    Weighing(class_weights=WEIGHTS, smoothing=0.2),
    Weighing(class_weights=WEIGHTS, ignored=1),
    Weighing(smoothing=0.3, ignored=-1),
    Weighing(class_weights=WEIGHTS, smoothing=0.25, ignored=-100),
    Weighing(class_weights=WEIGHTS, smoothing=0.25, ignored=0),
]


def run(
    objective: Objective, output: Array, labels: Array | None, vectors: dict[str, Array] | None = None
) -> tuple[float, Array]:
    """Loss and gradient of a graph that is the objective alone, over a model whose output is its input."""
    shape = output.shape[1:]
    node = helper.make_node("Identity", ["x"], ["y"])
    forward = Forward.read(model_of([node], {}, shape=shape, output=shape))
    graph = GraphBuilder({"x", "y", LOSS, LABEL})
    graph.nodes.append(node)
    gradient = write_objective(graph, forward, "y", objective)
    floats = TensorProto.FLOAT
    inputs: list[tuple[str, int, list[Any]]] = [("x", floats, ["n", *shape])]
    inputs += [] if labels is None else [(LABEL, objective.label_type or floats, ["n"])]
    inputs += [(name, floats, ["classes"]) for name in objective.class_inputs]
    inputs += [(name, floats, []) for name in objective.scalars]
    proto = helper.make_graph(
        graph.nodes,
        "objective",
        [helper.make_tensor_value_info(name, kind, size) for name, kind, size in inputs],
        [
            helper.make_tensor_value_info(LOSS, floats, []),
            helper.make_tensor_value_info(gradient.name, floats, ["n", *shape]),
        ],
        graph.constants,
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    feeds = {"x": output} | ({} if labels is None else {LABEL: labels}) | (vectors or {})
    feeds |= {name: np.array(value, np.float32) for name, value in objective.scalars.items()}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    loss, found = session.run(None, feeds)
    assert loss.shape == ()
    return float(loss), found


def torchs(loss: Any, output: Array, labels: Array) -> tuple[float, Array]:
    import torch

    x = torch.tensor(output.astype(np.float64), requires_grad=True)
    value = loss(torch, x, torch.tensor(labels))
    value.backward()
    assert x.grad is not None
    return float(value.detach()), x.grad.numpy()


def agree(found: tuple[float, Array], expected: tuple[float, Array]) -> None:
    assert found[0] == pytest.approx(expected[0], rel=2e-6, abs=1e-7)
    largest = max(float(np.abs(expected[1]).max()), 1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=2e-6 * largest)


def drawn(rows: int, weighing: Weighing, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    if weighing.ignored is not None:
        labels[rng.random(rows) < 0.4] = weighing.ignored
    labels[0] = 2 if weighing.ignored != 2 else 1
    return rng.normal(0, 3, (rows, CLASSES)).astype("f4"), labels


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("weighing", WEIGHINGS)
def test_cross_entropy_is_torchs(rows: int, weighing: Weighing) -> None:
    if weighing.ignored == 1 and weighing.class_weights:
        rows = max(rows, 5)
    logits, labels = drawn(rows, weighing, rows)

    def loss(torch: Any, x: Any, y: Any) -> Any:
        weight = torch.tensor(weighing.class_weights, dtype=torch.float64) if weighing.class_weights else None
        ignored = -100 if weighing.ignored is None else weighing.ignored
        return torch.nn.functional.cross_entropy(
            x, y, weight=weight, label_smoothing=weighing.smoothing, ignore_index=ignored
        )

    agree(run(Objective("cross-entropy", weighing), logits, labels), torchs(loss, logits, labels))


def test_weights_at_run_time_are_those_built_in() -> None:
    logits, labels = drawn(9, Weighing(), 0)
    later = run(
        Objective("cross-entropy", Weighing(weights_at_run_time=True)),
        logits,
        labels,
        {CLASS_WEIGHT: np.array(WEIGHTS, np.float32)},
    )
    agree(later, run(Objective("cross-entropy", Weighing(class_weights=WEIGHTS)), logits, labels))


@pytest.mark.parametrize("weighing", [Weighing(ignored=1), Weighing(class_weights=(1, 0, 1, 1), smoothing=0.1)])
def test_where_nothing_counts_loss_and_gradient_are_zero(weighing: Weighing) -> None:
    """Torch divides by zero here."""
    loss, gradient = run(Objective("cross-entropy", weighing), np.ones((3, CLASSES), "f4"), np.ones(3, np.int64))
    if weighing.smoothing == 0:
        assert (loss, np.abs(gradient).max()) == (0.0, 0.0)
    assert np.isfinite(loss)


@pytest.mark.parametrize("column", [(), (1,)])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_binary_cross_entropy_is_torchs(rows: int, column: tuple[int, ...]) -> None:
    rng = np.random.default_rng(rows)
    logits, labels = rng.normal(0, 4, (rows, *column)).astype("f4"), rng.integers(0, 2, rows)

    def loss(torch: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(x.reshape(-1), y.double())

    agree(run(Objective("binary-cross-entropy"), logits, labels), torchs(loss, logits, labels))


@pytest.mark.parametrize("weighing", [Weighing((0.5, 2.0), 0.1, -1), Weighing(smoothing=0.2), Weighing(ignored=0)])
def test_binary_cross_entropy_is_that_of_the_logits_zero_and_z(weighing: Weighing) -> None:
    rng = np.random.default_rng(1)
    z, labels = rng.normal(0, 2, (12, 1)).astype("f4"), rng.integers(0, 2, 12)
    labels[3] = -1 if weighing.ignored == -1 else labels[3]
    loss, gradient = run(Objective("binary-cross-entropy", weighing), z, labels)
    pair = np.concatenate([np.zeros_like(z), z], axis=1)
    expected, slopes = run(Objective("cross-entropy", weighing), pair, labels)
    agree((loss, gradient), (expected, slopes[:, 1:]))


@pytest.mark.parametrize("z", [-200.0, -30.0, 0.0, 30.0, 200.0])
def test_binary_cross_entropy_of_far_logits_is_finite(z: float) -> None:
    loss, gradient = run(Objective("binary-cross-entropy"), np.array([[z]], "f4"), np.array([1]))
    assert loss == pytest.approx(max(-z, 0.0) + np.log1p(np.exp(-abs(z))), rel=1e-6, abs=1e-7)
    assert -1 <= gradient[0, 0] <= 0


@pytest.mark.parametrize("column", [(), (1,)])
@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
def test_regression_losses_are_torchs(name: Any, rows: int, column: tuple[int, ...]) -> None:
    rng = np.random.default_rng(rows)
    values, labels = rng.normal(0, 3, (rows, *column)).astype("f4"), rng.normal(0, 3, rows).astype("f4")
    labels[0] = values.reshape(-1)[0]  # the kink of the absolute error

    def loss(torch: Any, x: Any, y: Any) -> Any:
        f = torch.nn.functional
        x, y = x.reshape(-1), y.double()
        return {"mse": f.mse_loss, "mae": f.l1_loss, "huber": lambda a, b: f.huber_loss(a, b, delta=0.7)}[name](x, y)

    found = run(Objective(name, huber_delta=0.7), values, labels)
    agree(found, torchs(loss, values, labels))
    assert found[0] == pytest.approx(float(sample_losses(name, values, labels, delta=0.7).mean()), rel=1e-6)


@pytest.mark.parametrize("column", [(), (1,)])
@pytest.mark.parametrize("loss", ["entropy", "pseudo-label"])
def test_label_free_objectives_take_one_logit_as_two_classes(loss: Any, column: tuple[int, ...]) -> None:
    z = np.random.default_rng(2).normal(0, 2, (9, *column)).astype("f4")
    pair = np.stack([np.zeros(9, "f4"), z.reshape(-1)], axis=1)
    prior = {"class_prior": np.array([1.0, 3.0], "f4")}
    alone, both = run(Objective(loss), z, None, prior), run(Objective(loss), pair, None, prior)
    agree(alone, (both[0], both[1][:, 1].reshape(z.shape)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Objective("mse", Weighing(smoothing=0.1)), "the loss 'mse' takes no class weights"),
        (lambda: Objective("entropy", Weighing(ignored=1)), "the loss 'entropy' takes no class weights"),
        (lambda: Objective("cross-entropy", Weighing(smoothing=1.0)), r"label smoothing 1.0 is outside \[0, 1\)"),
        (lambda: Objective("cross-entropy", Weighing((1.0, -1.0))), "class weights must be finite"),
        (lambda: Objective("cross-entropy", Weighing((1.0, 1e39))), "class weights must be finite"),
        (lambda: Objective("cross-entropy", Weighing((1e-50, 1e-50))), "one of them positive, as float32"),
        (lambda: Objective("huber", huber_delta=1e39), "not positive and finite as float32"),
        (lambda: Objective("huber", huber_delta=1e-50), "not positive and finite as float32"),
        (lambda: Objective("cross-entropy", Weighing((0.0, 0.0))), "one of them positive"),
        (lambda: Objective("cross-entropy", Weighing((1.0,), weights_at_run_time=True)), "not both"),
        (lambda: Objective("huber", huber_delta=0.0), "Huber's delta 0.0"),
    ],
)
def test_options_that_a_loss_does_not_have_are_named(make: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        make()


@pytest.mark.parametrize(
    ("loss", "shape", "words"),
    [
        ("cross-entropy", (), r"cross-entropy needs \(batch, classes\)"),
        ("cross-entropy", (1,), r"cross-entropy needs \(batch, classes\)"),
        ("binary-cross-entropy", (3,), "several labels a sample are not supported"),
        ("mae", (2,), r"mae needs \(batch,\) or \(batch, 1\)"),
        ("entropy", (2, 2), r"entropy needs \(batch, classes\)"),
    ],
)
def test_shapes_that_do_not_suit_are_named(loss: Any, shape: tuple[int, ...], words: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    forward = Forward.read(model_of([node], {}, shape=shape, output=shape))
    with pytest.raises(DataError, match=words):
        write_objective(GraphBuilder(()), forward, "y", Objective(loss))


def test_class_weights_must_be_one_a_class() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    forward = Forward.read(model_of([node], {}, shape=[3], output=[3]))
    with pytest.raises(DataError, match="2 class weights are given, the model has 3 classes"):
        write_objective(GraphBuilder(()), forward, "y", Objective("cross-entropy", Weighing((1.0, 2.0))))
