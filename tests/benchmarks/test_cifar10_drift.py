import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.cifar10_drift import kept_runs, run, save
from tests.benchmarks.cifar_data.grid import RoundAccount
from tests.benchmarks.cifar_data.setting import CLIENTS, SETTINGS, Setting, concept, family, partition
from tests.benchmarks.cifar_data.summary import apart, exact, paired, summarise
from tests.benchmarks.cifar_data.training_cache import TrainingCache

LABELS = np.repeat(np.arange(10), 5_000)


def _account(cohorts: list[int], number: int = 3, accuracy: float = 0.5) -> RoundAccount:
    clients = range(len(cohorts))
    return RoundAccount(number, dict.fromkeys(clients, accuracy), dict(zip(clients, cohorts, strict=True)))


def test_labels_turn_at_the_events_one_family_up_and_one_down() -> None:
    published = SETTINGS["published"]
    turned = [[int(concept(published, client, number)[3]) for number in (2, 3, 4, 5, 9)] for client in (0, 1, 9)]
    assert turned == [[3, 4, 4, 5, 7], [3, 2, 2, 1, 9], [3, 3, 3, 3, 3]]
    assert [family(client) for client in (0, 7, 8)] == ["A", "B", "stationary"]
    assert int(concept(SETTINGS["same direction"], 1, 5)[3]) == 7
    assert concept(SETTINGS["label swaps"], 1, 5).tolist() == [0, 1, 2, 3, 4, 5, 7, 6, 9, 8]
    assert concept(SETTINGS["two label swaps"], 0, 7).tolist() == [3, 0, 1, 2, 5, 4, 7, 6, 9, 8]


@pytest.mark.parametrize("name", ["published", "500 images", "Dirichlet 0.5"])
def test_no_image_is_used_twice(name: str) -> None:
    parts = partition(SETTINGS[name], LABELS, 0)
    rows = np.concatenate([rows for part in parts for rows in part])
    assert len(set(rows.tolist())) == len(rows)
    assert len(parts) == CLIENTS
    largest = max(np.bincount(LABELS[train], minlength=10).max() / len(train) for train, _ in parts)
    assert (largest > 0.25) == (name == "Dirichlet 0.5")


def test_what_was_computed_is_found_again_unless_anything_differs(tmp_path: Path) -> None:
    cache = TrainingCache(tmp_path)
    first = cache.get(lambda: {"a": np.arange(3)}, base="x", seed=1)
    again = cache.get(lambda: {"a": np.zeros(3)}, seed=1, base="x")
    other = cache.get(lambda: {"a": np.zeros(3)}, base="x", seed=2)
    assert first["a"].tolist() == again["a"].tolist() == [0, 1, 2]
    assert other["a"].tolist() == [0, 0, 0]
    assert (cache.computed, cache.found) == (2, 1)


def test_families_are_apart_only_if_no_cohort_has_two_and_exact_if_each_is_one() -> None:
    right = _account([1, 2, 1, 2, 1, 2, 1, 2, 0, 0])
    stray = _account([1, 2, 1, 2, 1, 2, 1, 3, 0, 0])
    mixed = _account([1, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    assert [(apart(a), exact(a)) for a in (right, stray, mixed)] == [(True, True), (True, False), (False, False)]


def test_the_interval_is_students() -> None:
    runs = {(arm, seed): [_account([0] * 10, accuracy=gain)] for arm, gains in (("ours", (0.51, 0.52, 0.53)),
            ("reference", (0.5, 0.5, 0.5))) for seed, gain in enumerate(gains)}  # fmt: skip
    found = paired(runs, lambda rounds: rounds[-1].accuracy[0])
    assert found is not None
    assert found.mean == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)  # 4.303 / sqrt(3)


def test_kept_runs_count_as_they_did_and_none_whose_participants_are_not_kept(tmp_path: Path) -> None:
    cohorts = [0, 1, 0, 1, 0, 1, 0, 1, 2, 2]
    losses = dict.fromkeys(range(CLIENTS), 1.0)
    rounds = [replace(_account(cohorts, number), flagged=list(range(8)), losses=losses) for number in (3, 4)]
    runs = {("ours", 0): rounds, ("reference", 0): [replace(one, flagged=[]) for one in rounds]}
    for name in ("published", "60 % participation"):
        save(name, runs, summarise(runs), tmp_path)
    again = kept_runs("published", tmp_path)
    assert summarise(again) == summarise(runs)
    assert [[(a.number, a.accuracy, a.cohorts) for a in again[key]] for key in runs] == [
        [(a.number, a.accuracy, a.cohorts) for a in mine] for mine in runs.values()
    ]
    for name in ("60 % participation", "quick"):
        with pytest.raises(SystemExit, match="kept"):
            kept_runs(name, tmp_path)


@pytest.mark.data
@pytest.mark.long
def test_ours_parts_the_families_fedavg_does_not_and_a_second_run_trains_nothing(tmp_path: Path) -> None:
    setting: Setting = replace(SETTINGS["500 images"], train=200, test=50, rounds=3)
    runs = run(setting, [1000], ("ours", "ours, reliability", "FedAvg", "ours, best start"), tmp_path)
    ours, reliable, fedavg = (runs[arm, 1000] for arm in ("ours", "ours, reliability", "FedAvg"))
    assert [account.flagged for account in ours] == [[], [], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert [exact(account) for account in ours] == [exact(account) for account in reliable] == [False, False, True]
    assert ours[-1].facts[0]["similarity"] < reliable[-1].facts[0]["similarity"]
    assert [account.flagged for account in runs["ours, best start", 1000]] == [account.flagged for account in ours]
    assert set(fedavg[-1].cohorts.values()) == {0}
    assert [a.accuracy for a in ours[:2]] == [a.accuracy for a in fedavg[:2]]
    trained = len(list((tmp_path / "trained").rglob("*.npz")))
    assert [a.accuracy for a in run(setting, [1000], ("ours",), tmp_path)["ours", 1000]] == [a.accuracy for a in ours]
    assert len(list((tmp_path / "trained").rglob("*.npz"))) == trained
    save("500 images", runs, summarise(runs), tmp_path)
    kept = json.loads((tmp_path / "cifar10_drift.json").read_text(encoding="utf-8"))["500 images"]
    assert kept["summary"]["arms"]["ours"]["events with one cohort a family"] == 1
    assert "stationary clients" in (tmp_path / "cifar10_drift_500-images_accuracy.svg").read_text(encoding="utf-8")
