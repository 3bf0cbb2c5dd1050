"""Label-free objectives against the same in float64 numpy, and their gradients against central differences."""

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.label_free import CLASS_PRIOR, CONFIDENCE, DIVERSITY, entropy, pseudo_label
from server_bridge.bundles.gradients.losses import LOSS, Gradient

CLASSES = 5
Floats = NDArray[np.float64]


def _run(
    write: Callable[[GraphBuilder, str], Gradient], scalar: tuple[str, float], logits: Floats, prior: Floats
) -> tuple[float, Floats]:
    graph = GraphBuilder({"logits", CLASS_PRIOR, scalar[0], LOSS})
    gradient = write(graph, "logits").name
    rows: list[str | int | None] = ["n", CLASSES]
    inputs: list[tuple[str, list[str | int | None]]] = [("logits", rows), (CLASS_PRIOR, [CLASSES]), (scalar[0], [])]
    outputs: list[tuple[str, list[str | int | None]]] = [(LOSS, []), (gradient, rows)]
    proto = helper.make_graph(
        graph.nodes,
        "objective",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        graph.constants,
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"logits": logits, CLASS_PRIOR: prior, scalar[0]: np.array(scalar[1])}
    loss, found = session.run(None, {name: value.astype(np.float32) for name, value in feeds.items()})
    return float(loss), np.asarray(found, np.float64)


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _entropy(logits: Floats, prior: Floats, diversity: float) -> float:
    p = _softmax(logits)
    mean, shares = p.mean(0), np.maximum(prior / prior.sum(), 1e-6)
    return float(-(p * np.log(p)).sum(1).mean() + diversity * (mean * np.log(mean / shares)).sum())


def _aligned(logits: Floats, prior: Floats) -> Floats:
    p = _softmax(logits)
    weighed = p * prior / prior.sum() / p.mean(0)
    return np.asarray(weighed / weighed.sum(1, keepdims=True))


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("diversity", [0.0, 1.0, 2.5])
def test_entropy_and_its_gradient_are_those_of_float64(rows: int, diversity: float) -> None:
    rng = np.random.default_rng(rows)
    logits, prior = rng.normal(0, 2, (rows, CLASSES)), rng.uniform(0.1, 3, CLASSES)
    loss, gradient = _run(entropy, (DIVERSITY, diversity), logits, prior)
    assert loss == pytest.approx(_entropy(logits, prior, diversity), rel=1e-5, abs=1e-6)
    for place in np.ndindex(*logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        ends = [_entropy(logits + sign * step, prior, diversity) for sign in (1, -1)]
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-6)


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("confidence", [0.0, 0.5])
def test_pseudo_labels_are_the_confident_classes_after_alignment(rows: int, confidence: float) -> None:
    rng = np.random.default_rng(rows + 100)
    logits, prior = rng.normal(0, 2, (rows, CLASSES)), rng.uniform(0.1, 3, CLASSES)
    loss, gradient = _run(lambda g, z: pseudo_label(g, z, CLASSES), (CONFIDENCE, confidence), logits, prior)
    aligned, p = _aligned(logits, prior), _softmax(logits)
    sure = aligned.max(1) >= confidence
    labels = np.eye(CLASSES)[aligned.argmax(1)]
    taken = max(1, int(sure.sum()))
    assert loss == pytest.approx(-(labels * np.log(p)).sum(1)[sure].sum() / taken, rel=1e-5, abs=1e-6)
    assert gradient == pytest.approx((p - labels) * sure[:, None] / taken, abs=2e-6)


def test_where_no_sample_is_confident_nothing_moves() -> None:
    loss, gradient = _run(
        lambda g, z: pseudo_label(g, z, CLASSES), (CONFIDENCE, 0.9), np.zeros((4, CLASSES)), np.ones(CLASSES)
    )
    assert (loss, np.abs(gradient).max()) == (0.0, 0.0)


def test_a_class_of_share_zero_and_logits_far_apart_stay_finite() -> None:
    prior = np.array([1.0, 0, 0, 1, 1])
    logits = np.array([[200.0, -200, 0, 0, 0], [-200, 200, 0, 0, 0]])
    for write, scalar in ((entropy, (DIVERSITY, 1.0)), (lambda g, z: pseudo_label(g, z, CLASSES), (CONFIDENCE, 0.0))):
        loss, gradient = _run(write, scalar, logits, prior)
        assert np.isfinite(loss)
        assert np.isfinite(gradient).all()


def test_the_batch_is_drawn_towards_the_prior() -> None:
    logits = np.zeros((6, CLASSES))
    prior = np.array([4.0, 1, 1, 1, 1])
    _, gradient = _run(entropy, (DIVERSITY, 1.0), logits, prior)
    assert (gradient[:, 0] < 0).all(), "descent raises the class that should be more"
    assert (gradient[:, 1:] > 0).all()
