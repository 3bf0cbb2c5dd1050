import numpy as np
import pytest

from edge_agent.drift.losses import sample_losses, sample_right
from server_bridge.bundles.calibrate import Score
from server_bridge.bundles.plausibility import doubt
from tests.bundles.nets import Array

ROWS = 400


def scored(logits: Array, labels: Array) -> Score:
    return Score(
        float(sample_losses("cross-entropy", logits, labels).mean()),
        float(sample_right("classification", logits, labels).mean()),
    )


def predictions(labels: Array, strength: float, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).normal(size=(len(labels), 4))
    return strength * np.eye(4)[labels] + noise


@pytest.mark.parametrize("seed", range(20))
def test_shuffled_labels_are_doubted_and_the_models_own_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, ROWS)
    logits = predictions(labels, 3.0, seed)
    assert doubt(scored(logits, labels), labels) is None
    shuffled = rng.permutation(labels)
    why = doubt(scored(logits, shuffled), shuffled)
    assert why is not None
    assert why.startswith("accuracy 0.")
    assert "on 400 held-out rows; the most frequent class alone gives 0." in why


def test_classes_in_another_order_are_doubted() -> None:
    labels = np.random.default_rng(1).integers(0, 4, ROWS)
    assert doubt(scored(predictions(labels, 5.0), labels), labels) is None
    assert doubt(scored(predictions(labels, 5.0), (labels + 1) % 4), (labels + 1) % 4) is not None


def test_a_rare_class_or_probabilities_that_are_off_are_not_enough() -> None:
    rare = (np.random.default_rng(2).random(ROWS) < 0.03).astype(np.int64)
    cautious = predictions(rare, 2.0) + np.log([0.97, 0.03, 1e-6, 1e-6])
    assert scored(cautious, rare).accuracy == pytest.approx(0.975, abs=0.01)
    assert doubt(scored(cautious, rare), rare) is None
    labels = np.random.default_rng(3).integers(0, 4, ROWS)
    assert doubt(scored(50 * predictions(labels, 3.0), labels), labels) is None


def test_values_are_compared_with_their_mean() -> None:
    labels = np.random.default_rng(4).normal(3.0, 2.0, ROWS)
    assert doubt(Score(1.0, None), labels) is None
    why = doubt(Score(4.5, None), labels)
    assert why is not None
    assert "the mean of their labels alone gives" in why
