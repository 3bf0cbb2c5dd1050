"""Fair labelling is not called biased, biased labelling is, and what is weighed looks like what was served."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.arrivals import BINS, ArrivalsParams, ArrivalsState, note_labelled, note_served
from edge_agent.drift.labelling import LabelEvidence, label_evidence

PARAMS = ArrivalsParams(mature_s=400.0, level=0.05, classes=4, edges=(0.4, 0.5, 0.6))
SHARES = np.tile([0.1, 0.15, 0.25, 0.5], 4) / 4
NOW_S = 1400.0


def _evidence(chances: NDArray[np.float64], rng: np.random.Generator, *, samples: int = 800) -> LabelEvidence:
    """Of samples over 1000 s, each labelled with its cell's chance; periods to 1000 s are old enough at 1400 s."""
    ids, times = [f"s{n}" for n in range(samples)], np.sort(rng.uniform(0, 1000, samples))
    cells = rng.choice(len(SHARES), samples, p=SHARES).astype(np.int16)
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ids, times, cells)
    labelled = np.flatnonzero(rng.random(samples) < chances[cells])
    delays = rng.exponential(60.0, len(labelled))
    return label_evidence(PARAMS, note_labelled(PARAMS, state, [ids[row] for row in labelled], delays), NOW_S)


def _by_bin(*chances: float) -> NDArray[np.float64]:
    return np.tile(chances, 4)


def test_fair_labelling_is_called_biased_at_most_at_the_level() -> None:
    # level 0.05; seed 0, 200 streams: a true rate of 0.05 gives more than 18 with chance 0.01; an e-value has far fewer
    rng = np.random.default_rng(0)
    found = [_evidence(np.full(16, share), rng) for share in rng.uniform(0.05, 0.95, 200)]
    assert sum(evidence.biased for evidence in found) <= 18
    # its expectation is at most 1: the mean of 200 with a standard deviation of about 1 stays below 1.3
    assert np.mean([evidence.e_value for evidence in found]) < 1.3
    assert {evidence.use for evidence in found} <= {"plain", "weighted", "declared-biased"}


@pytest.mark.parametrize(
    ("chances", "words"),
    [
        (_by_bin(0.6, 0.5, 0.2, 0.1), "low confidence"),
        (_by_bin(0.05, 0.1, 0.3, 0.5), "high confidence"),
        (np.repeat([0.2, 0.7, 0.2, 0.2], BINS), "to class 1"),
        (np.repeat([0.5, 0.5, 0.5, 0.0], BINS), "away from class 3"),
        (_by_bin(1.0, 0.0, 0.0, 0.0), "low confidence"),
    ],
)
def test_biased_labelling_is_found_and_named(chances: NDArray[np.float64], words: str) -> None:
    # power: 10 streams of 800 samples each, seed 1; each of these leanings is found in every one
    rng = np.random.default_rng(1)
    found = [_evidence(chances, rng) for _ in range(10)]
    assert all(evidence.biased for evidence in found)
    assert sum(evidence.leaning == words for evidence in found) >= 8


def test_weights_bring_back_the_served_shares() -> None:
    rng = np.random.default_rng(2)
    chances = _by_bin(0.8, 0.6, 0.3, 0.2) * np.repeat([1.0, 0.5, 1.0, 1.0], BINS)
    evidence = _evidence(chances, rng, samples=1500)
    assert evidence.use == "weighted"
    # a loss that depends on the cell: its mean over labelled samples is far off, the weighed one is not
    cells = rng.choice(16, 200_000, p=SHARES)
    loss, labelled = 1.0 - 0.2 * (cells % BINS), rng.random(len(cells)) < chances[cells]
    weights = evidence.weights_of(cells[labelled].astype(np.int16))
    weighed = float(weights @ loss[labelled] / weights.sum())
    assert abs(loss[labelled].mean() - loss.mean()) > 0.1
    assert abs(weighed - loss.mean()) < 0.03


def test_a_class_that_hardly_comes_does_not_run_away_with_the_weights() -> None:
    # class 3 is 0.4 % of the served samples: a label of it may be missing, or come when its weight is long decided
    rng = np.random.default_rng(6)
    shares = np.concatenate([SHARES[:12], SHARES[12:] / 60])
    ids, times = [f"s{n}" for n in range(900)], np.linspace(0, 1000, 900)
    cells = rng.choice(16, 900, p=shares / shares.sum()).astype(np.int16)
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ids, times, cells)
    labelled = np.flatnonzero((rng.random(900) < _by_bin(0.6, 0.5, 0.2, 0.1)[cells]) & (cells < 12))
    evidence = label_evidence(PARAMS, note_labelled(PARAMS, state, [ids[row] for row in labelled], 0 * labelled), NOW_S)
    assert evidence.use == "weighted"
    assert evidence.weights is not None
    assert evidence.weights.max() < 5


def test_what_has_no_labels_at_all_cannot_be_weighed() -> None:
    evidence = _evidence(_by_bin(1.0, 0.0, 0.0, 0.0), np.random.default_rng(3))
    assert evidence.use == "declared-biased"
    assert evidence.weights_of(np.zeros(2, np.int16)).tolist() == [1.0, 1.0]


def test_the_evidence_counts_delays_and_shares() -> None:
    evidence = _evidence(np.full(16, 0.3), np.random.default_rng(4), samples=600)
    assert evidence.use == "plain"
    assert evidence.served == evidence.drawn == pytest.approx(600, abs=2)
    assert evidence.share == pytest.approx(0.3, abs=0.06)  # 3 standard errors
    # exponential delays with mean 60 s: median 42 s, 90 % 138 s; 180 labels
    assert evidence.delays_s[1] == pytest.approx(42, abs=15)
    assert evidence.delays_s[2] == pytest.approx(138, abs=45)


def test_nothing_served_or_nothing_old_enough_is_no_evidence() -> None:
    empty = label_evidence(PARAMS, ArrivalsState.start(PARAMS), NOW_S)
    assert (empty.use, empty.drawn, empty.e_value) == ("no-evidence", 0, 1.0)
    assert np.isnan(empty.share)
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ["a"], np.array([1390.0]), np.zeros(1))
    young = label_evidence(PARAMS, state, NOW_S)
    assert (young.use, young.young) == ("no-evidence", 1)


def test_labels_that_come_later_than_allowed_count_as_none() -> None:
    state = note_served(PARAMS, ArrivalsState.start(PARAMS), ["a", "b"], np.zeros(2), np.zeros(2))
    evidence = label_evidence(PARAMS, note_labelled(PARAMS, state, ["a"], np.array([401.0])), NOW_S)
    assert (evidence.drawn, evidence.labelled) == (2, 0)


def test_regressions_lean_by_value() -> None:
    params = ArrivalsParams(mature_s=400.0, level=1e-3, classes=None, edges=(0.0, 1.0, 2.0))
    ids, cells = [f"s{n}" for n in range(400)], (np.arange(400) % BINS).astype(np.int16)
    state = note_served(params, ArrivalsState.start(params), ids, np.linspace(0, 999, 400), cells)
    high = [name for name, cell in zip(ids, cells, strict=True) if cell >= 2]
    evidence = label_evidence(params, note_labelled(params, state, high, np.zeros(len(high))), NOW_S)
    assert evidence.biased
    assert evidence.leaning == "high value"
