from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.training.job import TrainingJob, WorkFailed
from edge_agent.training.local_round import Data, LocalRound, minibatches, run_local_round
from tests.training.jobs import training_job
from tests.training.tiny_bundle import numpy_descent, numpy_loss, tiny_samples, tiny_weights


def job_for(bundle: Bundle, **changes: object) -> TrainingJob:
    return training_job(bundle, Path("unused.db"), **changes)


def test_a_round_is_gradient_descent_over_the_seeded_batches(bundle: Bundle) -> None:
    features, labels = tiny_samples(50)
    base = tiny_weights(3)
    outcome = run_local_round(bundle, base, features, labels, job_for(bundle))
    assert isinstance(outcome, LocalRound)
    rng = np.random.default_rng(7)
    rows = [batch for _ in range(2) for batch in minibatches(50, 8, rng)]
    expected = numpy_descent(base, features["x"], labels, rows, 0.5)
    trained = {name: base[name] + outcome.delta[name] for name in base}
    for name, tensor in expected.items():
        np.testing.assert_allclose(trained[name], tensor, rtol=0, atol=2e-6)
    squares = sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in outcome.delta.values())
    assert outcome.metrics["num-examples"] == 50
    assert outcome.metrics["clma-loss"] == pytest.approx(numpy_loss(base, features["x"], labels), rel=1e-5)
    assert outcome.metrics["loss-after"] == pytest.approx(numpy_loss(trained, features["x"], labels), rel=1e-5)
    assert outcome.metrics["update-norm"] == pytest.approx(squares**0.5, rel=1e-9)
    assert outcome.metrics["loss-after"] < outcome.metrics["clma-loss"]
    assert outcome.metrics["train-duration-s"] > 0


def test_the_same_seed_gives_the_same_update_bit_for_bit_and_another_another(bundle: Bundle) -> None:
    features, labels = tiny_samples(40)
    rounds = [
        run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle, seed=seed)) for seed in (1, 1, 2)
    ]
    deltas = [outcome.delta["w"].tobytes() for outcome in rounds if isinstance(outcome, LocalRound)]
    assert deltas[0] == deltas[1] != deltas[2]


def test_too_few_samples_are_not_trained_on(bundle: Bundle) -> None:
    features, labels = tiny_samples(9)
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle, min_samples=10))
    assert outcome == WorkFailed(reason="too-few-samples", detail="9 of 10")


@pytest.mark.parametrize("count", [0, 1])
def test_no_sample_or_one_never_fails_by_an_exception(bundle: Bundle, count: int) -> None:
    features, labels = tiny_samples(count)
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle, min_samples=1))
    assert isinstance(outcome, WorkFailed if count == 0 else LocalRound)


def test_a_diverging_round_is_refused_as_non_finite(bundle: Bundle) -> None:
    features, labels = tiny_samples(40)
    features["x"] *= np.float32(1e20)
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle, learning_rate=1e30))
    assert isinstance(outcome, WorkFailed)
    assert outcome.reason == "non-finite"


@pytest.mark.parametrize("value", [np.nan, 3.4e38])
def test_a_sample_that_a_sensor_spoilt_is_left_out_and_ends_no_round(bundle: Bundle, value: float) -> None:
    features, labels = tiny_samples(40)
    held_out = Data({"x": features["x"].copy()}, labels)
    held_out.features["x"][3] = value
    job = job_for(bundle)
    kept = np.arange(40) != 5
    wanted = run_local_round(bundle, tiny_weights(), {"x": features["x"][kept]}, labels[kept], job)
    features["x"][5] = value
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job, held_out=held_out)
    assert isinstance(outcome, LocalRound)
    assert isinstance(wanted, LocalRound)
    assert all(np.array_equal(outcome.delta[name], wanted.delta[name]) for name in wanted.delta)
    assert (outcome.metrics["num-examples"], outcome.metrics["unusable-examples"]) == (39, 1)
    assert outcome.metrics["proof-examples"] == 39
    assert "proof-loss-after" in outcome.metrics


def test_base_weights_that_fail_on_many_samples_are_refused_as_non_finite(bundle: Bundle) -> None:
    features, labels = tiny_samples(40)
    features["x"][:5, 1] = np.nan
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle))
    assert isinstance(outcome, WorkFailed)
    assert outcome.reason == "non-finite"


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_the_classes_is_named(bundle: Bundle, label: int) -> None:
    features, labels = tiny_samples(40)
    labels[7] = label
    with pytest.raises(DataError, match=str(label)):
        run_local_round(bundle, tiny_weights(), features, labels, job_for(bundle))


@given(count=st.integers(1, 200), batch_size=st.integers(1, 64), seed=st.integers(0, 2**32))
def test_an_epoch_uses_every_sample_once_but_at_most_a_lonely_last_one(count: int, batch_size: int, seed: int) -> None:
    batches = list(minibatches(count, batch_size, np.random.default_rng(seed)))
    used = np.concatenate(batches)
    lonely = batch_size > 1 and count > 1 and count % batch_size == 1
    assert len(used) == count - lonely
    assert len(set(used.tolist())) == len(used)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches[-1]) >= min(2, count, batch_size)
