"""What is known of samples beforehand spares a look at them and changes nothing."""

from dataclasses import replace

import numpy as np
import pytest

from edge_agent.drift.accuracy.signals import usable_rows
from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled.monitor import LabelFreeState, step_many
from tests.drift.unlabelled.made import BATCH, observed, params, rows


@pytest.mark.parametrize("broken", [0, 5])
def test_features_known_to_be_finite_are_judged_as_those_that_are_looked_at(broken: int) -> None:
    features, monitor = rows(8 * BATCH, 6, np.random.default_rng(4)), params(6)
    features[40 : 40 + broken, 2] = np.nan
    mask = np.isnan(features)
    seen = replace(observed(features), faulty=mask if broken else None)
    start = LabelFreeState.start(monitor)
    known = replace(seen, finite=True)
    (one, said), (other, told) = step_many(monitor, start, seen), step_many(monitor, start, known)
    assert said == told
    for name, array in one.to_arrays().items():
        assert array.tobytes() == other.to_arrays()[name].tobytes()
    usable, known_so = usable_rows(seen), usable_rows(known)
    assert (usable is None) == (known_so is None) == (broken == 0)
    if usable is not None and known_so is not None:
        assert usable.tolist() == known_so.tolist()


def test_a_part_is_as_well_known_as_the_whole() -> None:
    whole = Observed(["a", "b"], np.zeros(2), np.zeros((2, 1)), np.zeros((2, 1)), finite=True)
    assert whole.part(0, 1).finite
    assert not replace(whole, finite=False).part(1, 2).finite
