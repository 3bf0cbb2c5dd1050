"""The monitor's promise: its form, its level, what it refuses."""

import numpy as np
import pytest

from edge_agent.drift.sequential.calibration import calibrate_loss_level, fitted
from edge_agent.drift.sequential.loss_level import LossLevelParams
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec
from tests.benchmarks.false_alarms_data.level import mechanism, unseen
from tests.benchmarks.false_alarms_data.worlds import WORLDS
from tests.drift.streams import clean_losses


def test_the_manifests_entry_gives_the_monitor_back() -> None:
    rng = np.random.default_rng(0)
    made, promise = fitted(clean_losses(3000, rng), batch_size=32, rate=0.02, rng=rng)
    spec, arrays = made.to_spec(promise)
    read = MonitorSpec.model_validate_json(spec.model_dump_json(by_alias=True))
    params = LossLevelParams.from_spec(read, arrays)
    assert params.to_spec(promise)[0] == spec
    assert all(np.array_equal(array, params.to_spec(promise)[1][name]) for name, array in arrays.items())
    assert read.false_alarm_rate == 0.02
    assert read.promise is not None
    assert read.promise.effective_batches == pytest.approx(3000 / 32)
    assert params.warning_threshold < params.threshold
    assert sum(array.nbytes for array in arrays.values()) < 8192


@pytest.mark.parametrize("name", ["threshold", "inflation", "warmup_batches"])
def test_an_entry_without_a_constant_names_it(name: str) -> None:
    rng = np.random.default_rng(0)
    spec, arrays = calibrate_loss_level(clean_losses(3000, rng), batch_size=32, rate=0.1, rng=rng)
    parameters = {key: value for key, value in spec.parameters.items() if key != name}
    with pytest.raises(DataError, match=name):
        LossLevelParams.from_spec(spec.model_copy(update={"parameters": parameters}), arrays)


def test_a_rate_that_the_losses_cannot_promise_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="do not support a false-alarm rate of"):
        calibrate_loss_level(clean_losses(3000, rng), batch_size=32, rate=1e-3, rng=rng)


def test_losses_without_an_error_get_the_threshold_that_is_proven() -> None:
    params, promise = fitted(np.zeros(3000), batch_size=32, rate=0.01, rng=np.random.default_rng(0))
    assert promise.threshold < params.threshold == pytest.approx(np.log(3200) - 1)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_mechanism_keeps_its_rate(world: object) -> None:
    # 200 alarms calibrate and about 150 are counted: a ratio's deviation is 0.11, 1.5 is 3.6 of them. A mechanism whose
    # rate is 2x or 0.5x what it promises passes with probability 0.01. Seed 0.
    one = next(known for known in WORLDS if known is world)
    found = mechanism(one.name, one.reference(300, np.random.default_rng(0)), 1e-2, 15_000, 0)
    assert 1 / 1.5 <= found.ratio <= 1.5


def test_the_promise_holds_on_new_data() -> None:
    # 8 calibrations on 100 effective batches, 50 alarms each, seeds 0-7. Were the rate kept within 1.5x in 50 % only, 7
    # or more would be seen with probability 0.04; in the promised 90 %, with 0.81. The benchmark has 50 and more.
    ratios = [unseen(WORLDS[seed % 4], 2e-2, 100, 2500, seed).ratio for seed in range(8)]
    assert sum(ratio <= 1.5 for ratio in ratios) >= 7
