"""What a gateway refuses of an order: switches, limits, another bundle, weights that do not fit."""

import time
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.orders import OrderFailed
from edge_agent.wire.blobs import make_reference
from edge_agent.wire.messages import (
    Evaluate,
    TrainingEvent,
)
from tests.runtime.local_work_bench import ENDLESS, LONG_S, Bench, command, never


def test_the_operators_off_switch_cannot_be_switched_on_from_outside(
    tmp_path: Path, bundle: Bundle, samples_db: Path
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, enabled=False)
    bench.work.set_enabled(True)
    assert bench.refusal().reason == "training-disabled"
    bench.close()


def test_the_bridge_may_switch_training_off_and_on(bench: Bench) -> None:
    bench.work.set_enabled(False)
    assert bench.refusal().reason == "training-disabled"
    bench.work.set_enabled(True)
    assert bench.train().round == 3


def test_rounds_an_hour_are_limited_and_refusals_do_not_count(tmp_path: Path, bundle: Bundle, samples_db: Path) -> None:
    bench = Bench(tmp_path, bundle, samples_db, max_rounds_per_hour=1)
    for _ in range(3):
        assert bench.refusal(bundle="0" * 64).reason == "other-bundle"
    bench.train("c1")
    refused = bench.refusal(command_id="c2")
    assert (refused.reason, refused.detail) == ("rate-limit", "1 rounds in the last hour")
    assert bench.uploader.offered() == ["c1"]
    bench.close()


def test_an_order_for_another_bundle_is_refused_before_anything_is_fetched(bench: Bench) -> None:
    absent = make_reference(b"not there")[0]
    refused = bench.refusal(bundle="0" * 64, base=absent)
    assert refused.reason == "other-bundle"
    assert bench.serving.bundle[:12] in refused.detail
    action = Evaluate(bundle="0" * 64, weights=absent)
    with pytest.raises(OrderFailed, match="other-bundle"):
        bench.work.evaluate(command("c1", action), action, never, time.monotonic() + LONG_S)


def test_a_bundle_activated_meanwhile_voids_the_round(bench: Bench) -> None:
    bench.answers = [bench.serving, Serving("0" * 64, bench.serving.bundle_dir, None)]
    assert bench.refusal().reason == "bundle-changed"
    assert bench.uploader.offered() == []


def test_an_order_whose_time_is_over_is_not_begun(bench: Bench) -> None:
    assert bench.refusal(within_s=-1.0).reason == "too-late"
    assert not bench.supervisor.busy


@pytest.mark.parametrize(("ours", "ordered", "needed"), [(5000, 1, 5000), (1, 4000, 4000)])
def test_the_larger_minimum_of_samples_holds(
    tmp_path: Path, bundle: Bundle, samples_db: Path, ours: int, ordered: int, needed: int
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, min_samples=ours)
    refused = bench.refusal(min_samples=ordered)
    assert refused.reason == "too-few-samples"
    assert f"of {needed}" in refused.detail
    (event,) = bench.events()
    assert isinstance(event, TrainingEvent)
    assert (event.step, event.detail[:16]) == ("failed", "too-few-samples:")
    bench.close()


def test_the_operators_longest_duration_ends_a_round(tmp_path: Path, bundle: Bundle, samples_db: Path) -> None:
    bench = Bench(tmp_path, bundle, samples_db, max_duration_s=0.05)
    assert bench.refusal(epochs=ENDLESS).reason == "killed-duration"
    assert not bench.supervisor.busy
    bench.close()


def test_weights_that_do_not_fit_are_the_workers_refusal(bench: Bench) -> None:
    assert bench.refusal(base=bench.hold(b"no weights at all")).reason == "bad-job"
