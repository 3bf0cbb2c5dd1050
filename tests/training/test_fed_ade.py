"""The schedule ``fed-ade``: rates in bounds, batches in the order of time, the base's view, reported."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.fed_ade import FedAdeParams, FedAdeState, step
from edge_agent.drift.fed_ade_scale import SignalScale
from edge_agent.drift.label_free import LABEL_FREE_FILE, LabelFreeCalibration
from edge_agent.drift.label_shift import softmax
from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.training.fed_ade import FedAdeRate, fed_ade_params, see
from edge_agent.training.job import WorkFailed
from edge_agent.training.local_round import LocalRound, run_local_round
from tests.training.jobs import training_job
from tests.training.tiny_bundle import numpy_descent, tiny_samples

RATES = {"schedule": "fed-ade", "learning_rate": 0.5, "learning_rate_min": 0.01}


def _rate(bundle: Bundle, minimum: float = 0.01, maximum: float = 0.5) -> FedAdeRate:
    model = InferenceModel(bundle, bundle.initial_weights())
    return FedAdeRate(model, bundle.manifest, FedAdeParams(), minimum=minimum, maximum=maximum)


def test_a_round_steps_through_time_at_the_rates_that_the_shifts_give(bundle: Bundle, tmp_path: Path) -> None:
    features, labels = tiny_samples(24)
    features["x"][:12, 0] += 8  # a shift between the second batch and the third
    base = bundle.initial_weights()
    outcome = run_local_round(
        bundle, base, features, labels, training_job(bundle, tmp_path, epochs=1, batch_size=6, **RATES)
    )
    assert isinstance(outcome, LocalRound)
    state, rates = FedAdeState(), []
    logits = features["x"] @ base["w"] + base["b"]
    for start in range(0, 24, 6):
        state, shift = step(FedAdeParams(), state, softmax(logits[start : start + 6]), None)
        rates.append(shift.rate(0.01, 0.5))
    assert rates[0] == 0.01, "nothing before the first"
    assert rates[2] > 2 * rates[1]
    weights = base
    for number, rate in enumerate(rates):
        rows = np.arange(6 * number, 6 * number + 6)
        descended = numpy_descent(weights, features["x"], labels, [rows], rate)
        weights = {name: value.astype(np.float32) for name, value in descended.items()}
    for name in base:
        assert base[name] + outcome.delta[name] == pytest.approx(weights[name], abs=1e-6)
    assert outcome.metrics["fed-ade-rate-mean"] == pytest.approx(np.mean(rates), rel=1e-5)
    assert outcome.metrics["fed-ade-rate-max"] == pytest.approx(max(rates), rel=1e-5)
    assert outcome.metrics["fed-ade-scaled"] == 0


def test_a_pass_does_not_compare_the_oldest_batch_with_the_newest(bundle: Bundle) -> None:
    features, _ = tiny_samples(16)
    batches = [{"x": features["x"][:8]}, {"x": -features["x"][8:]}]
    schedule = _rate(bundle)
    passes = []
    for _ in range(2):
        schedule.begin_epoch()
        passes.append([schedule.rate(batch) for batch in batches])
    assert passes[0] == [0.01, passes[1][1]]
    assert passes[1][0] == passes[1][1], "the shift so far holds until two batches can be compared"


def test_halves_of_the_data_keep_the_order_of_time(bundle: Bundle, tmp_path: Path) -> None:
    features, labels = tiny_samples(64)
    job = training_job(bundle, tmp_path, split_half=True, batch_size=16, **RATES)
    outcome = run_local_round(bundle, bundle.initial_weights(), features, labels, job)
    assert isinstance(outcome, LocalRound)
    assert outcome.metrics["clma-split-half"] > 0.5


def test_a_calibrated_bundle_has_its_shifts_scaled(bundle: Bundle, tmp_path: Path) -> None:
    scale = SignalScale(1.0, 0.25)
    assert fed_ade_params(bundle) == FedAdeParams()
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    files[LABEL_FREE_FILE] = LabelFreeCalibration(np.full(3, 1 / 3), uncertainty=scale).encode()
    calibrated = write_bundle(
        tmp_path / "calibrated", bundle.manifest.model_copy(update={"files": file_digests(files)}), files
    )
    assert fed_ade_params(calibrated).uncertainty == scale
    files[LABEL_FREE_FILE] = b"damaged"
    damaged = write_bundle(
        tmp_path / "damaged", bundle.manifest.model_copy(update={"files": file_digests(files)}), files
    )
    with pytest.raises(DataError, match=r"label_free\.safetensors"):
        fed_ade_params(damaged)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.floats(0, 1, allow_subnormal=False),
    st.floats(1e-6, 1e3),
    st.integers(0, 10**6),
)
@settings(deadline=None)
def test_any_rate_is_positive_and_within_its_bounds(
    bundle: Bundle, sizes: list[int], share: float, maximum: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    schedule = _rate(bundle, share * maximum, maximum)
    for size in sizes:
        spoilt = np.where(rng.random((size, 4)) < 0.1, np.nan, rng.normal(0, 1e3, (size, 4))).astype(np.float32)
        rate = schedule.rate({"x": spoilt})
        assert rate > 0
        assert share * maximum * (1 - 1e-9) <= rate <= maximum * (1 + 1e-9)


def test_rates_out_of_order_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    for minimum, maximum in ((0.2, 0.1), (-0.1, 0.1), (0.0, 0.0), (0.0, float("inf"))):
        with pytest.raises(DataError, match="fed-ade: rates from"):
            _rate(bundle, minimum, maximum)
    features, labels = tiny_samples(16)
    job = training_job(bundle, tmp_path, schedule="fed-ade", learning_rate=0.1, learning_rate_min=0.2)
    with pytest.raises(DataError, match="fed-ade: rates from"):
        run_local_round(bundle, bundle.initial_weights(), features, labels, job)


def test_too_few_samples_are_so_under_this_schedule_too(bundle: Bundle, tmp_path: Path) -> None:
    features, labels = tiny_samples(3)
    outcome = run_local_round(
        bundle, bundle.initial_weights(), features, labels, training_job(bundle, tmp_path, **RATES)
    )
    assert isinstance(outcome, WorkFailed)
    assert outcome.reason == "too-few-samples"


def test_a_model_of_one_logit_is_seen_as_two_classes(bundle: Bundle) -> None:
    class OneLogit:
        primary = "z"

        def run(self, features: object) -> dict[str, np.ndarray]:
            return {"z": np.array([[0.0], [50.0]])}

    probabilities = see(OneLogit(), bundle.manifest, {}).probabilities
    assert probabilities == pytest.approx(np.array([[0.5, 0.5], [0, 1]]))
