import numpy as np

from tests.benchmarks.faults_data.injected import DRIFTS, FAULTS
from tests.benchmarks.faults_data.recorded import Recorded
from tests.benchmarks.sensor_faults import _found, _quiet
from tests.drift.faults.sensors import params_of, slow


def test_a_fault_is_counted_as_found_and_a_drift_is_not() -> None:
    one = Recorded("slow", slow(2000, 8, 1), {"later": slow(2000, 8, 2)})
    params = params_of(one.reference)
    quiet = _quiet(one, params, "later")
    assert (quiet.rows, quiet.sensors, quiet.reports) == (2000, 8, [])
    found = _found(one, params, "stuck", FAULTS["stuck"], 3)
    assert (found.told, found.named, found.others) == (3, {"stuck": 3}, 0)
    assert found.masked == 1.0
    assert _found(one, params, "scale x 2", DRIFTS["scale x 2"], 3).told == 0


def test_every_change_keeps_the_shape() -> None:
    x = slow(50, 1, 3)[:, 0]
    for change in (*FAULTS.values(), *DRIFTS.values()):
        for shaped in (x, x.reshape(5, 10)):
            assert change(shaped, x, np.random.default_rng(0)).shape == shaped.shape
