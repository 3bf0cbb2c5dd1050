"""The benchmark runs, and what it compares is the same net."""

from pathlib import Path

import pytest

from tests.benchmarks.step_data.cases import case
from tests.benchmarks.step_data.chart import chart
from tests.benchmarks.training_step import run, save, step_line, swap_line

pytestmark = pytest.mark.oracle


def test_a_quick_run_compares_the_same_net(tmp_path: Path) -> None:
    found = run([case("mlp")], tmp_path / "work", rounds=2, threads=[1], optimisers=["adam"], share=0.05)
    outcome, alone = found.outcomes
    assert alone.title == f"{outcome.title}, each step by itself"
    assert (alone.first_loss, alone.last_loss) == (outcome.first_loss, outcome.last_loss)
    assert outcome.parameters == 64 * 128 + 128 + 128 * 16 + 16
    assert outcome.ratio > 0
    assert outcome.last_loss < outcome.first_loss
    assert found.swaps[0].bit_equal
    assert outcome.title in step_line(outcome)
    assert swap_line(found.swaps[0]).endswith("| yes |")
    save(found, tmp_path / "results")
    assert (tmp_path / "results" / "training_step.json").stat().st_size > 100
    assert outcome.title in chart(found.outcomes)
