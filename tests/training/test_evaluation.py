import math
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.training.evaluation import BLOCK_ROWS, Evaluation, evaluate
from tests.training.tiny_bundle import numpy_loss, tiny_samples, tiny_weights


@pytest.mark.parametrize("count", [1, BLOCK_ROWS, 2 * BLOCK_ROWS + 3])
def test_loss_and_accuracy_are_means_over_all_blocks(bundle: Bundle, count: int) -> None:
    features, labels = tiny_samples(count)
    weights = tiny_weights(2)
    result = evaluate(InferenceModel(bundle, weights), bundle.manifest, features, labels)
    right = (features["x"] @ weights["w"] + weights["b"]).argmax(axis=1) == labels
    assert result.samples == count
    assert result.loss == pytest.approx(numpy_loss(weights, features["x"], labels), rel=1e-5)
    assert result.accuracy == pytest.approx(right.mean())
    each = [numpy_loss(weights, features["x"][i : i + 1], labels[i : i + 1]) for i in range(count)]
    if count > 1:
        assert result.loss_error == pytest.approx(np.std(each, ddof=1) / np.sqrt(count), rel=1e-4)
    errors = {"loss-error"} if count > 1 else set()
    assert set(result.metrics()) == {"num-examples", "loss", "accuracy"} | errors


def test_no_sample_has_neither_loss_nor_accuracy(bundle: Bundle) -> None:
    features, labels = tiny_samples(0)
    result = evaluate(InferenceModel(bundle, tiny_weights()), bundle.manifest, features, labels)
    assert result.metrics() == {"num-examples": 0}


def test_an_infinite_loss_is_left_out_of_the_metrics() -> None:
    assert Evaluation(3, math.inf, 0.5).metrics() == {"num-examples": 3, "accuracy": 0.5}


def test_a_regression_has_no_accuracy() -> None:
    assert Evaluation(3, 1.5, None).metrics() == {"num-examples": 3, "loss": 1.5}


def test_a_label_that_is_no_class_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    features, labels = tiny_samples(5)
    labels[2] = 77
    with pytest.raises(DataError, match="77"):
        evaluate(InferenceModel(bundle, tiny_weights()), bundle.manifest, features, np.asarray(labels))
