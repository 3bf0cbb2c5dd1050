"""The benchmark runs, and both sides begin and step alike."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.learning_quality import line, run, save
from tests.benchmarks.quality_data.tasks import gas
from tests.benchmarks.quality_data.twin import tuned_by_torch, tuned_here

pytestmark = [pytest.mark.oracle, pytest.mark.data]


@pytest.mark.long
def test_gas_is_tuned_alike(tmp_path: Path) -> None:
    (result,) = results = run(["gas"], [0], tmp_path)
    assert result.ours > result.before
    assert abs(result.points) <= 0.5
    assert result.apart < 1e-4
    assert line("gas", results).count("|") == 14
    save(results, tmp_path / "results")
    assert (tmp_path / "results" / "learning_quality.json").stat().st_size > 100


def test_the_order_of_samples_is_what_the_sides_share(tmp_path: Path) -> None:
    task = gas(tmp_path, 1)
    steps = list(task.batches())
    assert [rows.tolist() for rows in task.batches()] == [rows.tolist() for rows in steps]
    ours, theirs = tuned_here(task), tuned_by_torch(task)
    assert all(np.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)
