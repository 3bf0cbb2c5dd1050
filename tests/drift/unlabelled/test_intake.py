import numpy as np
import pytest

from edge_agent.drift.unlabelled.intake import ALONE, CHANNELS_CAP, GROUPS, Intake, windowed_sensors


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


def test_100000_features_become_256_channels() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(40, 100_000)).astype(np.float32)
    intake = Intake.of(features, [f"x[{place}]" for place in range(100_000)], ("",) * 100_000)

    before, after = intake(features, None), intake(features + 0.5, None)

    assert before.shape == (40, CHANNELS_CAP)
    assert intake.names[-GROUPS:][0] == "group 1 of 64"
    deviation = before[:, -GROUPS:].std()
    assert np.abs((after - before)[:, -GROUPS:]).mean() > 0.3 * deviation


def test_groups_are_signed_sums_of_clipped_standardised_values() -> None:
    rng = np.random.default_rng(4)
    features = rng.normal(3.0, 2.0, size=(200, 1000)).astype(np.float32)
    intake = Intake.of(features, [f"x{place}" for place in range(1000)], ("",) * 1000)
    features[7, 1] = 1e6  # of no channel of its own

    sums = intake(features, None)[:, ALONE:]

    others = np.delete(np.arange(1000), intake.alone)
    standard = np.clip((features[:, others] - intake.centre) * intake.per_unit, -4.0, 4.0)
    starts = np.linspace(0, len(others), GROUPS, endpoint=False).astype(int)
    for group, (start, stop) in enumerate(zip(starts, [*starts[1:], len(others)], strict=True)):
        signs = np.linalg.lstsq(standard[:, start:stop], sums[:, group], rcond=None)[0]
        np.testing.assert_allclose(np.abs(signs), np.sqrt(GROUPS / len(others)), rtol=1e-3)
    assert sums.std(axis=0) == pytest.approx(np.ones(GROUPS), abs=0.4)


def test_what_little_is_missing_in_a_group_counts_as_its_mean_and_of_more_there_is_no_value() -> None:
    """Else a dead sensor in a group of two would alone look like a drift of the group."""
    rng = np.random.default_rng(3)
    features = rng.normal(3.0, size=(30, 10_000))
    intake = Intake.of(features, [f"x{place}" for place in range(10_000)], ("",) * 10_000)
    one, many = np.zeros((2, 30, 10_000), np.bool_)
    one[:, 1] = many[:, 1:12] = True
    moved = np.where(one, features + 100.0, features)

    np.testing.assert_array_equal(intake(moved, one)[:, 1:], intake(features, one)[:, 1:])
    assert np.isfinite(intake(features, one)).all()
    gone = np.isnan(intake(features, many))
    assert gone[:, ALONE].all()
    assert not gone[:, ALONE + 1 :].any()
    assert np.isnan(intake(features, np.ones((30, 10_000), np.bool_))).all()
