from pathlib import Path

import numpy as np
import pytest

from server_bridge.bundles.fit import score_bundle
from server_bridge.demo.base import Groundwork
from server_bridge.demo.data import BUCKETS_PER_PASS, INPUT
from server_bridge.demo.measure import BASE
from server_bridge.demo.plan import plan_fleet
from server_bridge.demo.streams import StreamPlan


def test_the_base_is_fitted_and_calibrated_on_what_it_has_not_seen(groundwork: Groundwork) -> None:
    accuracy = score_bundle(groundwork.bundle, groundwork.bundle.path.parent / "calibration.npz").accuracy
    assert accuracy is not None
    assert accuracy > 0.9
    assert groundwork.bundle.manifest.monitors["loss-rise"].batch_size == 64
    assert [spec.name for spec in groundwork.bundle.manifest.inputs] == [INPUT]


def test_every_gateway_has_a_stream_that_fits_its_plan(groundwork: Groundwork) -> None:
    for plan in plan_fleet(3):
        stream = groundwork.streams[plan.id]
        with np.load(groundwork.stream_files[plan.id]) as arrays:
            assert len(arrays["label"]) == 2 * stream.rows_per_pass
            assert arrays["holdout"].sum() == sum(stream.clean) + sum(stream.second)
            assert arrays["time"][stream.rows_per_pass] == pytest.approx(stream.pass_s, abs=1 / stream.rate_hz)


def test_buckets_of_later_passes_repeat_those_of_the_second(groundwork: Groundwork) -> None:
    stream: StreamPlan = groundwork.streams["gw-01"]
    for bucket in range(BUCKETS_PER_PASS):
        assert stream.expected(bucket) == stream.clean[bucket]
        assert stream.expected(BUCKETS_PER_PASS + bucket) == stream.expected(5 * BUCKETS_PER_PASS + bucket)
    assert BASE.is_base
    assert isinstance(groundwork.stream_files["gw-01"], Path)
