"""Which monitors a bundle gets, what they promise, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.drift.observed import Observed
from edge_agent.drift.policy.catalogue import promised_rate
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.wire.manifest import Manifest
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.data import LabelledData
from server_bridge.bundles.makers import LABELLED_MAKERS
from server_bridge.bundles.monitors import AIMED_RATE, Monitors, calibrated
from server_bridge.bundles.rates import Rate, false_alarms_of
from server_bridge.bundles.reference import reference_of, segments_of
from server_bridge.bundles.wish import Wish
from tests.bundles.nets import classified, mlp, save_npz


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("b")
    return built(folder, 64).manifest


def built(folder: Path, rows: int, wish: Wish | None = None) -> Bundle:
    data = save_npz(folder / "data.npz", **classified(mlp(), rows, seed=3))
    settings = BuildSettings(["*"], "cross-entropy", optimisers=("sgd",), wish=wish or Wish())
    return build_bundle(mlp(), data, settings, folder / "bundle")


def reference(losses: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Reference:
    rows = len(losses)
    observed = Observed(
        [str(row) for row in range(rows)], np.arange(rows, dtype=np.float64), np.zeros((rows, 1)), np.zeros((rows, 3))
    )
    return Reference(observed, losses, np.zeros(rows, np.int64), 3, np.zeros(rows, np.int64), ("x",), ("",))


def labelled(losses: "np.ndarray[tuple[int], np.dtype[np.float64]]", manifest: Manifest, **asked: Any) -> Monitors:
    """What losses alone give, at batches of 32; no wish if none is asked."""
    wanted: dict[str, Any] = {"wish": Wish(), "seed": 0, "plain": (), **asked}
    return calibrated(reference(losses), manifest, batch_size=32, makers=LABELLED_MAKERS, **wanted)


def correlated(rows: int, memory: float, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Losses whose logarithm is an AR(1) series."""
    rng = np.random.default_rng(seed)
    level = np.zeros(rows)
    for row in range(1, rows):
        level[row] = memory * level[row - 1] + np.sqrt(1 - memory**2) * rng.normal()
    return np.exp(level)


def test_few_rows_leave_the_published_rule_and_say_so(tmp_path: Path) -> None:
    told: list[str] = []
    data = save_npz(tmp_path / "data.npz", **classified(mlp(), 64, seed=3))
    settings = BuildSettings(["*"], "cross-entropy", optimisers=("sgd",))
    bundle = build_bundle(mlp(), data, settings, tmp_path / "bundle", noted=told.extend)
    assert "loss-rise" in bundle.manifest.monitors
    assert not {"loss-level", "label-free", "accuracy"} & set(bundle.manifest.monitors)
    assert "loss-level left out: 64 rows, 256 are needed" in told
    assert "label-free left out: 64 rows, 320 are needed" in told


def test_the_default_promises_the_lowest_rate_that_is_supported_and_aims_lower(manifest: Manifest) -> None:
    made = labelled(correlated(1600, 0.0, 1), manifest)
    spec = made.specs["loss-level"]
    assert spec.promise is not None
    assert spec.promise.effective_batches == pytest.approx(50, rel=0.2)
    lowest = f"1 per {1 / spec.promise.lowest_rate:,.0f} batches, the lowest supported"
    assert spec.promise.words == f"{lowest}; aims at 1 per 10,000 batches"
    assert (spec.false_alarm_rate, promised_rate(spec)) == (AIMED_RATE, spec.promise.lowest_rate)
    wish = Wish(false_alarms_of(f"{2 * spec.promise.lowest_rate}"))
    asked = labelled(correlated(1600, 0.0, 1), manifest, wish=wish).specs["loss-level"]
    assert asked.false_alarm_rate == pytest.approx(spec.promise.lowest_rate)
    assert float(asked.parameters["threshold"]) < float(spec.parameters["threshold"])
    assert any("would need more rows" in note for note in made.notes)
    assert any("the rows' order says nothing" in note for note in made.notes)


def test_autocorrelation_costs_what_can_be_promised_and_order_is_not_doubted(manifest: Manifest) -> None:
    made = labelled(correlated(8000, 0.9, 2), manifest)
    promise = made.specs["loss-level"].promise
    assert promise is not None
    assert promise.block_rows > 10
    assert promise.effective_batches < 8000 / 32 / 5
    assert not any("order says nothing" in note for note in made.notes)


def test_a_lower_rate_than_supported_is_refused_with_the_way_out(manifest: Manifest) -> None:
    wish = Wish(false_alarms_of("1 per 30 days"), Rate(10.0, "second", "10 per second"))
    with pytest.raises(DataError) as refused:
        labelled(correlated(1600, 0.0, 1), manifest, wish=wish)
    assert "do not support 1 per 60 days" in refused.value.problem
    assert "the lowest is 1 per " in refused.value.problem
    needed = int(refused.value.hint.split("give about ")[1].split()[0])
    assert 0.9 < needed * wish.of_one(32) / (1600 * 0.01) < 1.5, "in proportion to the rate"
    assert "--lowest" in refused.value.hint


def test_the_lowest_may_be_asked_for_and_is_kept_in_words(manifest: Manifest) -> None:
    wish = Wish(false_alarms_of("1e-6"), lowest=True)
    spec = labelled(correlated(200, 0.0, 1), manifest, wish=wish).specs["loss-level"]
    assert promised_rate(spec) == pytest.approx(0.08, rel=0.3)
    assert spec.false_alarm_rate == AIMED_RATE, "nobody wants more alarms than are tolerable"


def test_too_few_rows_for_any_promise_still_decide_and_say_so(manifest: Manifest) -> None:
    made = labelled(correlated(256, 0.97, 6), manifest)
    spec = made.specs["loss-level"]
    assert spec.promise is not None
    assert spec.promise.effective_batches < 1
    assert spec.promise.words == "none; aims at 1 per 10,000 batches"
    assert any("loss-level promises nothing: to it 256 rows are worth 0." in note for note in made.notes)


def test_losses_that_say_nothing_leave_a_monitor_out(manifest: Manifest) -> None:
    losses = np.full(640, np.inf)
    made = labelled(losses, manifest)
    assert set(made.specs) == {"loss-rise"}
    assert any(note.startswith("loss-level is left out: ") for note in made.notes)


def test_a_built_bundle_holds_the_monitors_and_their_arrays(tmp_path: Path) -> None:
    bundle = built(tmp_path, 640)
    again = load_bundle(bundle.path)
    assert {"loss-rise", "loss-level", "label-free", "accuracy", "arrivals", "faults"} == set(again.manifest.monitors)
    arrays = again.drift_arrays()
    assert {"loss-level", "label-free", "accuracy", "faults"} <= set(arrays)


def test_calibration_repeats_bit_for_bit(manifest: Manifest) -> None:
    one, two = (labelled(correlated(400, 0.0, 1), manifest, seed=4) for _ in range(2))
    assert one.specs == two.specs
    assert one.files() == two.files()


def test_the_reference_is_in_order_of_time_with_segments(manifest: Manifest) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 5)).astype(np.float32)
    times = np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    data = LabelledData({"x": features}, np.arange(6) % 3, times=times, groups=np.array([0, 0, 0, 1, 1, 1]))
    found = reference_of(manifest, data, {"y": rng.normal(size=(6, 3))})
    assert found.observed.ids == ["1", "2", "0", "5", "4", "3"]
    assert found.observed.times_s.tolist() == sorted(times)
    assert (found.observed.features == features[[1, 2, 0, 5, 4, 3]]).all()
    assert found.segments.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.names == tuple(f"x[{place}]" for place in range(5))


@pytest.mark.parametrize(
    ("groups", "segments"),
    [
        (None, [0, 0, 0, 0]),
        ([7, 7, 2, 2], [0, 0, 1, 1]),
        ([1, 2, 1, 2], [0, 0, 0, 0]),
    ],
)
def test_groups_that_interleave_are_one_stream(groups: list[int] | None, segments: list[int]) -> None:
    found = segments_of(None if groups is None else np.array(groups), 4)
    assert found.tolist() == segments
