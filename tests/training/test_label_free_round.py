"""Rounds without labels: they learn, keep to the shares, and are judged by the labels that exist."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.training.evaluation import evaluate
from edge_agent.training.fed_ade import label_free_calibration
from edge_agent.training.job import TrainingJob, WorkFailed
from edge_agent.training.label_free_round import is_label_free, run_label_free_round
from edge_agent.training.local_round import Data, LocalRound
from edge_agent.wire.tensors import Weights
from tests.training.jobs import training_job
from tests.training.label_free_bundle import gaussian, label_free_bundle

MOVED = 1.2


@pytest.fixture(scope="module")
def adaptable(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return label_free_bundle(tmp_path_factory.mktemp("label-free") / "net")


def _job(bundle: Bundle, **changes: object) -> TrainingJob:
    fields: dict[str, object] = {
        "training_graph": "entropy-sgd",
        "learning_rate": 0.1,
        "batch_size": 32,
        "epochs": 3,
    }
    return training_job(bundle, Path("samples.db"), **{**fields, **changes})


def _accuracy(bundle: Bundle, weights: Weights, moved: float = MOVED) -> float:
    features, labels = gaussian(2000, 99, moved=moved)
    found = evaluate(InferenceModel(bundle, weights), bundle.manifest, features, labels).accuracy
    assert found is not None
    return found


def _trained(bundle: Bundle, outcome: LocalRound | WorkFailed) -> Weights:
    assert isinstance(outcome, LocalRound)
    return {name: value + outcome.delta[name] for name, value in bundle.initial_weights().items()}


@pytest.mark.parametrize("graph", ["entropy-sgd", "pseudo-label-sgd"])
@pytest.mark.parametrize("schedule", ["constant", "fed-ade"])
def test_samples_without_labels_repair_a_net_whose_features_moved(adaptable: Bundle, graph: str, schedule: str) -> None:
    features, _ = gaussian(320, 5, moved=MOVED)
    job = _job(adaptable, training_graph=graph, schedule=schedule, learning_rate_min=0.01 * (schedule != "constant"))
    outcome = run_label_free_round(adaptable, adaptable.initial_weights(), features, job)
    before, after = (_accuracy(adaptable, w) for w in (adaptable.initial_weights(), _trained(adaptable, outcome)))
    assert after > before + 0.03
    assert isinstance(outcome, LocalRound)
    assert outcome.metrics["num-examples"] == 320
    assert ("fed-ade-rate-mean" in outcome.metrics) == (schedule == "fed-ade")
    assert outcome.metrics.get("fed-ade-scaled", 1) == 1, "a bundle built with --label-free is calibrated"


def test_steps_that_no_sample_was_sure_enough_for_are_told(adaptable: Bundle) -> None:
    features, _ = gaussian(320, 5, moved=MOVED)
    job = _job(adaptable, training_graph="pseudo-label-sgd", scalars={"confidence": 1.0})
    outcome = run_label_free_round(adaptable, adaptable.initial_weights(), features, job)
    assert isinstance(outcome, LocalRound)
    assert 0 < outcome.metrics["steps-skipped"] <= 30
    sure = run_label_free_round(adaptable, adaptable.initial_weights(), features, _job(adaptable))
    assert isinstance(sure, LocalRound)
    assert "steps-skipped" not in sure.metrics


def test_estimated_shares_keep_a_label_shift_from_being_trained_away(adaptable: Bundle) -> None:
    shares = np.array([0.9, 0.08, 0.02])
    features, labels = gaussian(320, 6, shares)
    base = adaptable.initial_weights()
    scored = {}
    for label_shift in (False, True):
        outcome = run_label_free_round(adaptable, base, features, _job(adaptable, label_shift=label_shift))
        assert isinstance(outcome, LocalRound)
        model = InferenceModel(adaptable, _trained(adaptable, outcome))
        scored[label_shift] = evaluate(model, adaptable.manifest, features, labels).accuracy or 0.0
        largest = outcome.metrics["class-share-max"]
        assert largest == pytest.approx(0.9 if label_shift else 0.34, abs=0.05)
    assert scored[True] > scored[False] + 0.02


def test_held_out_labels_refuse_a_round_that_made_things_worse(adaptable: Bundle) -> None:
    shares = np.array([0.95, 0.03, 0.02])
    features, _ = gaussian(320, 7, shares)
    held = Data(*gaussian(200, 8, shares))
    base = adaptable.initial_weights()
    job = _job(adaptable, learning_rate=1.0)
    outcome = run_label_free_round(adaptable, base, features, job, held_out=held)
    assert isinstance(outcome, WorkFailed)
    assert outcome.reason == "made-worse"
    sent = run_label_free_round(
        adaptable, base, features, _job(adaptable, learning_rate=1.0, send_worse=True), held_out=held
    )
    assert isinstance(sent, LocalRound)
    nothing = Data({"x": np.zeros((0, 6), np.float32)}, np.zeros(0))
    assert isinstance(run_label_free_round(adaptable, base, features, job, held_out=nothing), LocalRound)


def test_a_round_repeats_bit_for_bit(adaptable: Bundle) -> None:
    features, _ = gaussian(96, 5, moved=MOVED)
    first, second = (
        run_label_free_round(adaptable, adaptable.initial_weights(), features, _job(adaptable, schedule="fed-ade"))
        for _ in range(2)
    )
    assert isinstance(first, LocalRound)
    assert isinstance(second, LocalRound)
    assert all(np.array_equal(first.delta[name], second.delta[name]) for name in first.delta)


def test_too_few_samples_and_spoilt_ones_end_as_words(adaptable: Bundle) -> None:
    base = adaptable.initial_weights()
    outcome = run_label_free_round(adaptable, base, {"x": np.zeros((3, 6), np.float32)}, _job(adaptable))
    assert isinstance(outcome, WorkFailed)
    assert outcome.reason == "too-few-samples"
    one = run_label_free_round(adaptable, base, {"x": np.zeros((1, 6), np.float32)}, _job(adaptable, min_samples=1))
    assert isinstance(one, LocalRound), "a batch of one is a step like another"
    spoilt = run_label_free_round(adaptable, base, {"x": np.full((8, 6), np.nan, np.float32)}, _job(adaptable))
    assert isinstance(spoilt, WorkFailed)
    assert spoilt.reason == "non-finite"
    rows = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    rows[3] = 3.4e38
    outcome = run_label_free_round(adaptable, base, {"x": rows}, _job(adaptable))
    assert isinstance(outcome, LocalRound)
    assert (outcome.metrics["num-examples"], outcome.metrics["unusable-examples"]) == (39, 1)


def test_which_graphs_need_no_labels(adaptable: Bundle) -> None:
    assert is_label_free(adaptable, "entropy-sgd")
    assert not is_label_free(adaptable, "sgd")
    assert label_free_calibration(adaptable) is not None
