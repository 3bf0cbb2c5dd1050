from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_bridge.demo.data import (
    BORDERS,
    BUCKETS_PER_PASS,
    DELAY_S,
    INPUT,
    WINDOW,
    Part,
    interleaved,
    make_stream,
    standardisation,
    windows_of,
    write_samples,
    write_stream,
)
from server_bridge.demo.plan import plan_fleet, remount
from server_bridge.demo.recordings import Recording, load_recordings


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return load_recordings()[0]


def numbered(length: int) -> Recording:
    """A recording whose values are its own sample numbers."""
    return Recording("r000", 1, 0, np.repeat(np.arange(length, dtype=np.float32)[:, None], 6, axis=1))


@given(st.integers(min_value=1000, max_value=2600))
@settings(max_examples=30)
def test_no_window_crosses_a_border(length: int) -> None:
    for part in Part:
        low, high = (int(length * border) for border in BORDERS[part])
        windows = windows_of([numbered(length)], [part])
        assert windows.signal.min() >= low
        assert windows.signal.max() < high
        assert (np.diff(windows.signal[:, 0], axis=1) == 1).all()


def test_standardisation_comes_from_the_fit_part(recordings: list[Recording]) -> None:
    fit = windows_of(recordings, [Part.FIT])
    mean, deviation = standardisation(fit)
    scaled = (fit.signal - mean[None, :, None]) / deviation[None, :, None]
    assert np.abs(scaled.mean(axis=(0, 2))).max() < 1e-3
    assert np.abs(scaled.std(axis=(0, 2)) - 1).max() < 1e-3


def test_a_stream_is_a_clean_pass_and_a_remounted_one(recordings: list[Recording]) -> None:
    plan = plan_fleet(10)[0]
    stream = make_stream(plan, recordings, seed=0)
    rows = stream.loop_from_row
    assert rows % BUCKETS_PER_PASS == 0
    assert len(stream.windows) == 2 * rows
    own = windows_of([r for r in recordings if r.subject == plan.subject], list(Part))
    known = {window.tobytes() for window in own.signal}
    turned = {window.tobytes() for window in remount(plan.family, own.signal)}
    assert all(window.tobytes() in known for window in stream.windows.signal[:rows])
    assert all(np.ascontiguousarray(window).tobytes() in turned for window in stream.windows.signal[rows:])
    held = stream.windows.holdout
    assert held[:rows].sum() == held[rows:].sum() == own.holdout.sum()


def test_the_seed_decides_the_order(recordings: list[Recording]) -> None:
    plan = plan_fleet(10)[4]
    first, again, other = (make_stream(plan, recordings, seed) for seed in (0, 0, 1))
    assert (first.windows.group == again.windows.group).all()
    assert (first.windows.group != other.windows.group).any()


def test_every_batch_sees_many_recordings_and_its_share_of_holdout(recordings: list[Recording]) -> None:
    stream = make_stream(plan_fleet(10)[0], recordings, seed=0)
    share = stream.windows.holdout.mean()
    for start in range(0, stream.loop_from_row, 64):
        batch = slice(start, start + 64)
        assert len(set(stream.windows.label[batch].tolist())) >= 5
        assert abs(stream.windows.holdout[batch].mean() - share) < 0.1


@given(st.integers(min_value=20, max_value=300), st.integers(min_value=1, max_value=9))
def test_interleaving_keeps_every_holdout_row(rows: int, held: int) -> None:
    holdout = np.arange(rows) < held
    order = interleaved(holdout, np.random.default_rng(0))
    assert len(order) % BUCKETS_PER_PASS == 0
    assert len(set(order.tolist())) == len(order)
    assert holdout[order].sum() == held


def test_written_streams_have_late_labels_and_rising_times(tmp_path: Path, recordings: list[Recording]) -> None:
    stream = make_stream(plan_fleet(10)[9], recordings, seed=0)
    write_stream(tmp_path / "stream.npz", stream, rate_hz=75.0, seed=0)
    with np.load(tmp_path / "stream.npz") as arrays:
        assert set(arrays) == {INPUT, "label", "group", "holdout", "delay", "time"}
        assert arrays[INPUT].shape == (2 * stream.loop_from_row, 6, WINDOW)
        assert arrays[INPUT].dtype == np.float32
        assert arrays["delay"].min() >= DELAY_S[0]
        assert arrays["delay"].max() <= DELAY_S[1]
        bucket_s = stream.bucket_rows / 75.0
        buckets = np.floor(arrays["time"] / bucket_s)
        assert (buckets == np.arange(len(buckets)) // stream.bucket_rows).all()


def test_written_samples_can_be_read_without_pickle(tmp_path: Path, recordings: list[Recording]) -> None:
    write_samples(tmp_path / "calibration.npz", windows_of(recordings, [Part.CALIBRATION]))
    with np.load(tmp_path / "calibration.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {INPUT, "label", "group"}
        assert len(arrays["label"]) == len(arrays[INPUT]) > 400
