"""What the benchmark of the label-free monitor's promise draws and counts."""

import numpy as np
import pytest

from tests.benchmarks.false_alarms_data.level import Rate
from tests.benchmarks.false_alarms_data.unlabelled import WORLDS, Rows, unseen
from tests.benchmarks.label_free_level import summaries


@pytest.mark.parametrize(("kind", "phi"), WORLDS)
def test_a_world_is_the_same_at_all_times_and_depends_as_it_says(kind: str, phi: float) -> None:
    # Seed 0; ranks of 400 streams of 60 rows: a correlation is off by 0.007, 0.03 is 4 of that
    seen = Rows(kind, 6, phi).draw(400, 60, np.random.default_rng(0))
    first = seen.features.reshape(400, 60, 6)[:, :, 0]
    ranks = first.ravel().argsort().argsort().reshape(400, 60) / first.size - 0.5
    neighbours = float((ranks[:, :-1] * ranks[:, 1:]).mean() / np.square(ranks).mean())

    assert seen.embeddings is not None
    assert np.isfinite(seen.outputs).all()
    if kind != "heavy":  # a common scale of its own in each row is on top
        assert neighbours == pytest.approx(phi, abs=0.03)
    assert ranks[:, :30].mean() == pytest.approx(ranks[:, 30:].mean(), abs=0.02)


@pytest.mark.long
def test_a_calibration_is_judged_on_rows_that_it_has_not_seen() -> None:
    found = unseen(0, 500, 0.1, 5)

    assert found is not None
    assert (found.case, found.promised) == ("independent, 2 features, 500 rows", 0.1)
    assert found.batches >= 50
    assert found.ratio < 1.5


def test_calibrations_are_summed_up_by_the_rows_of_their_reference() -> None:
    found = [Rate("unseen", f"mixed, {k} features, 500 rows", 1e-2, alarms, 1000) for k, alarms in enumerate((5, 20))]

    (words,) = summaries([*found, Rate("held out", "gas", 1e-2, 9, 100)])

    assert words.startswith("  500 rows: 2 calibrations, measured over promised: median 1.25")
    assert "at most 1.5 in 50%" in words
