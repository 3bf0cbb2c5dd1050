from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.cohort_recovery import Recovery, main, save
from tests.benchmarks.cohorts_data.chart import chart
from tests.benchmarks.cohorts_data.drifted import adjusted_rand
from tests.benchmarks.cohorts_data.synthetic import Recipe, draw


def test_the_index_is_one_for_equal_partitions_and_zero_for_all_in_one() -> None:
    truth = np.array([0, 0, 1, 1, 2])
    assert adjusted_rand(np.array([2, 2, 0, 0, 1]), truth) == 1.0
    assert adjusted_rand(np.zeros(5, np.intp), truth) == 0.0
    # Hubert and Arabie's index by hand: 1 pair together in both, 2 and 2 in each, 10 pairs
    assert adjusted_rand(np.array([0, 0, 1, 2, 1]), truth) == pytest.approx((1 - 0.4) / (2 - 0.4))


def test_a_recipe_gives_the_ratio_and_the_reliability_that_it_states() -> None:
    drifted = draw(Recipe([400], 2_000, 0.5, halves=True), 0)
    energy = np.square(drifted.changes, dtype=np.float64).sum(1).mean()
    assert energy == pytest.approx(1 + 1 / 0.25, rel=0.05)
    assert drifted.reliability is not None
    assert drifted.reliability.mean() == pytest.approx(1 / (1 + 2 / 0.25), rel=0.1)


def test_results_of_other_cases_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    one = Recovery("gas", "level", "a", "ours", 3, 1.0, 1.0, 0)
    save([one], file)
    save([Recovery("gas", "level", "b", "ours", 3, 0.5, 0.0, 1)], file)
    text = file.read_text(encoding="utf-8")
    assert text.count('"case": "a"') == text.count('"case": "b"') == 1


def test_a_chart_names_its_cases_and_ways() -> None:
    entry = {"section": "gas", "case": "batch 2 & 3", "way": "ours", "mean": 0.5}
    drawn = chart("Level", [entry])
    assert "gas: batch 2 &amp; 3" in drawn
    assert drawn.count("<circle") == 1


@pytest.mark.long
@pytest.mark.data
@pytest.mark.reference
@pytest.mark.parametrize("case", ["gas batches [4, 6] x 4", "digits turn 90 | turn 180 | turn 270 x 4"])
def test_families_of_real_drifts_are_found_in_a_quick_run(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In 20 and 10 seeds all were (docs/cohorting.md); here 2."""
    main(["--quick", "--seeds", "2", "--only", case])
    assert "ours 1.000  ours+context 1.000" in capsys.readouterr().out
