import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.gas_drift_cohorts import GasRun, run_arm, save, summarise
from tests.benchmarks.gas_fleet import BATCHES, DRIFT_ROUND, GasGateways
from tests.shared_data import DATA


@pytest.mark.data
@pytest.mark.long
def test_aged_sensors_get_a_cohort_a_batch_and_recover(tmp_path: Path) -> None:
    fleet = GasGateways(DATA, tmp_path, seed=1002)
    ours, fedavg = run_arm(fleet, "ours"), run_arm(fleet, "FedAvg")
    assert ours.flagged == [3, 4, 5, 6, 7, 8]
    assert ours.exact
    assert ours.before == fedavg.before
    assert max(ours.drifted["batch 3"], ours.drifted["batch 4"]) < 0.8 < 0.9 < min(ours.after.values())
    assert ours.after["stayed"] > fedavg.after["stayed"] + 0.05
    save([ours, fedavg], tmp_path)
    kept = json.loads((tmp_path / "gas_drift_cohorts.json").read_text(encoding="utf-8"))
    assert kept["summary"]["ours"]["exact"] == 1
    assert (tmp_path / "gas_drift_cohorts.svg").read_text(encoding="utf-8").count("<polyline") == 6


@pytest.mark.data
def test_no_two_gateways_train_on_one_sample_and_none_on_what_it_is_tested_on(tmp_path: Path) -> None:
    fleet = GasGateways(DATA, tmp_path, seed=1002)
    for number, one_a_group in ((1, (0,)), (DRIFT_ROUND, (0, 3, 6))):
        own = [fleet.of(gateway, number) for gateway in BATCHES]
        tested = [own[gateway].test for gateway in one_a_group]
        rows = np.concatenate([samples.features for samples in (*(o.train for o in own), *tested)])
        assert len(np.unique(rows, axis=0)) == len(rows)


def test_a_group_in_two_cohorts_is_apart_and_not_exact() -> None:
    def of(cohorts: list[list[int]]) -> GasRun:
        return GasRun("ours", 0, {}, {}, {}, [], [], 0, cohorts)

    cases = [[[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[0, 1, 2], [3, 4], [5], [6, 7, 8]], [[0, 1, 2, 3], [4, 5], [6, 7, 8]]]
    assert [(of(case).apart, of(case).exact) for case in cases] == [(True, True), (True, False), (False, False)]
    assert summarise([]) == {}
