import numpy as np
import pytest

from edge_agent.drift.unlabelled.intake import ALONE, GROUPS, Intake, of_all, stride_of, windowed_sensors


def _named(sensors: tuple[str, ...], steps: int) -> list[str]:
    return [f"{sensor}[{place}]" for place in range(steps) for sensor in sensors]


@pytest.mark.parametrize(
    ("names", "sensors"),
    [
        (_named(("ax", "ay", "gz"), 100), 3),
        ([f"x[{place}]" for place in range(128)], 0),
        ([*(f"a[{p}]" for p in range(16)), *(f"b[{p}]" for p in range(16))], 0),
        (_named(("ax", "ay"), 4), 0),
        (["AT", "AP"], 0),
        ([*_named(("ax", "ay"), 10)[:-1], "odd[3]"], 0),
    ],
)
def test_windows_are_known_by_their_names(names: list[str], sensors: int) -> None:
    assert windowed_sensors(names) == sensors


def test_a_sensors_window_becomes_mean_spread_and_roughness() -> None:
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(5, 100, 3))
    intake = Intake.of(windows.reshape(5, -1), _named(("ax", "ay", "gz"), 100), ("g",) * 300)

    channels = intake(windows.reshape(5, -1), None)

    assert intake.names == ("ax", "ay", "gz") * 3
    np.testing.assert_allclose(channels[:, :3], windows.mean(1))
    np.testing.assert_allclose(channels[:, 3:6], windows.std(1))
    np.testing.assert_allclose(channels[:, 6:], np.abs(np.diff(windows, axis=1)).mean(1))


def test_missing_readings_are_left_out_of_a_window_and_too_many_leave_none() -> None:
    rng = np.random.default_rng(1)
    windows = rng.normal(size=(1, 20, 2))
    missing = np.zeros((1, 20, 2), np.bool_)
    missing[0, ::4, 0] = True
    missing[0, :12, 1] = True
    intake = Intake.of(windows.reshape(1, -1), _named(("a", "b"), 20), ("",) * 40)

    channels = intake(windows.reshape(1, -1), missing.reshape(1, -1))

    there = windows[0, ~missing[0, :, 0], 0]
    np.testing.assert_allclose(channels[0, [0, 2]], [there.mean(), there.std()])
    assert np.isnan(channels[0, [1, 3, 5]]).all()


def test_100000_features_become_128_channels() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(40, 100_000)).astype(np.float32)
    intake = Intake.of(features, [f"x[{place}]" for place in range(100_000)], ("",) * 100_000)

    before, after = intake(features, None), intake(features + 0.5, None)

    assert before.shape == (40, ALONE + GROUPS)
    assert intake.names[-GROUPS:][0] == "group 1 of 64"
    deviation = before[:, -GROUPS:].std()
    assert np.abs((after - before)[:, -GROUPS:]).mean() > 0.3 * deviation


@pytest.mark.parametrize("count", [257, 1000, 3072])
def test_sums_are_signed_ones_of_clipped_standardised_values(count: int) -> None:
    """Of 3,072 every third: what is in no sum is no channel either."""
    rng = np.random.default_rng(4)
    features = rng.normal(3.0, 2.0, size=(200, count)).astype(np.float32)
    intake = Intake.of(features, [f"x{place}" for place in range(count)], ("",) * count)
    wild = 3  # of no channel of its own
    assert wild not in intake.alone
    features[7, wild] = 1e6

    sums = intake(features, None)[:, ALONE:]

    places = np.arange(0, count, stride_of(count))
    own = ~np.isin(places, intake.alone)
    standard = np.clip((features[:, places] - intake.centre) * intake.per_unit, -4.0, 4.0)[:, own]
    starts = np.linspace(0, own.sum(), GROUPS, endpoint=False).astype(int)
    for group, (start, stop) in enumerate(zip(starts, [*starts[1:], own.sum()], strict=True)):
        signs = np.linalg.lstsq(standard[:, start:stop], sums[:, group], rcond=None)[0]
        np.testing.assert_allclose(np.abs(signs), np.sqrt(GROUPS / own.sum()), rtol=1e-3)
    assert np.square(sums).mean() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("kind", ["features", "sums"])
def test_a_sample_is_taken_in_alike_however_many_others_are(kind: str) -> None:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(96, 64 if kind == "features" else 2500)).astype(np.float32)
    intake = Intake.of(features, [f"x{place}" for place in range(features.shape[1])], ("",) * features.shape[1])
    assert intake.kind == kind
    missing = np.zeros(features.shape, np.bool_)
    missing[50, :] = True
    for gone in (None, missing):
        whole = intake(features, gone)
        parts = [slice(0, 1), slice(1, 40), slice(40, 96)]
        alone = [intake(features[part], None if gone is None else gone[part]) for part in parts]
        np.testing.assert_array_equal(np.concatenate(alone), whole)


def test_a_sum_of_which_something_is_missing_has_no_value() -> None:
    """Else a dead sensor in a group of two would alone look like a drift of the group."""
    rng = np.random.default_rng(3)
    features = rng.normal(3.0, size=(30, 10_000))
    intake = Intake.of(features, [f"x{place}" for place in range(10_000)], ("",) * 10_000)
    one, unseen = np.zeros((2, 30, 10_000), np.bool_)
    one[:, 9] = unseen[:, 10] = True
    moved = np.where(one, np.inf, features)

    gone = np.isnan(intake(moved, one))
    assert gone[:, ALONE].all()
    assert not np.delete(gone, ALONE, axis=1).any()
    np.testing.assert_array_equal(intake(features, unseen), intake(features, None))
    assert np.isnan(intake(features, np.ones((30, 10_000), np.bool_))).all()


def test_an_older_bundle_s_sums_are_what_they_were() -> None:
    """All but 192 of its features are summed, and it has the units of those alone."""
    rng = np.random.default_rng(6)
    features = rng.normal(2.0, 3.0, size=(50, 4000)).astype(np.float32)
    alone = np.linspace(0, 3999, 192).astype(np.int64)
    others = np.delete(np.arange(4000), alone)
    centre, per_unit = rng.normal(size=(2, len(others))).astype(np.float32)
    per_unit = np.abs(per_unit) + np.float32(0.1)
    columns = [of_all(4000, alone, column) for column in (centre, per_unit)]
    intake = Intake("sums", 4000, 0, ("",) * 256, ("",) * 256, alone, *columns)

    signs = np.random.default_rng(20_260_101).choice(np.array([-1.0, 1.0], np.float32), len(others))
    standard = np.clip((features[:, others] - centre) * per_unit, -4.0, 4.0) * signs / np.sqrt(len(others) / 64)
    sums = np.add.reduceat(standard, np.linspace(0, len(others), 64, endpoint=False).astype(int), axis=1)
    np.testing.assert_allclose(intake(features, None), np.concatenate([features[:, alone], sums], axis=1), atol=1e-4)
