import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.samples.record import SampleBatch
from edge_agent.sources.replay import CATCH_UP_S, READ_ROWS, ReplaySource
from edge_agent.wire.manifest import TensorSpec

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["n", 2])]
ROWS = 10


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def _file(folder: Path, **columns: NDArray[np.generic]) -> Path:
    path = folder / "play.npz"
    features = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    np.savez(path, x=features, **({"label": np.arange(ROWS)} | columns))  # type: ignore[arg-type]  # savez's kwargs
    return path


def _play(
    source: ReplaySource, clock: Clock, seconds: float, step_s: float = 0.1
) -> tuple[list[SampleBatch], list[str]]:
    """Read until the time has passed, letting it pass in steps."""
    batches: list[SampleBatch] = []
    labels: list[str] = []
    for _ in range(round(seconds / step_s)):
        while True:
            read = source.read(0.0)
            if read is None:
                return batches, labels
            labels += [f"{label.id}={label.value}" for label in read.labels]
            if read.samples is None:
                break
            batches.append(read.samples)
        clock.now_s += step_s
    return batches, labels


def _ids(batches: list[SampleBatch]) -> list[str]:
    return [name for batch in batches for name in batch.ids]


def test_every_row_comes_once_with_its_label_then_the_end(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(_file(tmp_path), INPUTS, rate_hz=10, batch_size=4, delay_s=0.5, clock=clock)
    batches, labels = _play(source, clock, 3.0)
    assert [len(batch.ids) for batch in batches] == [4, 4, 2]
    assert _ids(batches) == [f"{row}-0" for row in range(ROWS)]
    assert labels == [f"{row}-0={row}" for row in range(ROWS)]
    assert np.concatenate([batch.features["x"] for batch in batches])[:, 0].tolist() == list(range(0, 20, 2))
    assert [time_s for batch in batches for time_s in batch.times] == [row / 10 for row in range(ROWS)]
    assert source.read(0.0) is None


def test_batches_that_are_all_due_come_in_one_read_and_are_predicted_one_by_one(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "long.npz"
    rows = 2 * READ_ROWS + 7
    np.savez(path, x=np.zeros((rows, 2), np.float32), label=np.arange(rows))
    source = ReplaySource(path, INPUTS, rate_hz=1000, batch_size=5, delay_s=0.5, loop=True, clock=clock)
    source.read(0.0)
    clock.now_s += 0.5  # 501 samples are due
    reads = [source.read(0.0) for _ in range(6)]
    assert [read and (read.samples and len(read.samples.ids), read.run_rows) for read in reads] == [
        (60, 5), (60, 5), (15, 5), (60, 5), (60, 5), (15, 5)
    ]  # fmt: skip
    names = [name for read in reads if read is not None and read.samples is not None for name in read.samples.ids]
    assert names == [f"{row}-{played}" for played in (0, 1) for row in range(rows)]
    labels = [label.id for read in reads if read is not None for label in read.labels]
    assert labels == ["0-0"]


def test_the_schedule_does_not_drift(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(_file(tmp_path), INPUTS, rate_hz=7, loop=True, batch_size=3, clock=clock)
    _play(source, clock, 100.0, step_s=0.37)
    last_read_s = clock.now_s - 1000.0 - 0.37
    assert 0 <= last_read_s * 7 - source.played <= 3


def test_after_a_stall_at_most_the_catch_up_is_made_up_for(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(_file(tmp_path), INPUTS, rate_hz=10, loop=True, batch_size=1, clock=clock)
    _play(source, clock, 1.0)
    before = source.played
    clock.now_s += 60.0
    _play(source, clock, 0.1)
    assert source.played - before <= CATCH_UP_S * 10 + 2
    before = source.played
    _play(source, clock, 10.0)
    assert abs(source.played - before - 100) <= 12


def test_labels_with_different_delays_come_out_of_order_and_some_never(tmp_path: Path) -> None:
    delays = np.array([0.9, 0.1, 0.1, np.nan, 0.0, 3.0, 0.1, 0.1, 0.1, 0.1])
    labels = np.arange(ROWS, dtype=np.float64)
    labels[8] = np.nan
    clock = Clock()
    source = ReplaySource(
        _file(tmp_path, delay=delays, label=labels), INPUTS, rate_hz=10, batch_size=1, delay_s=99.0, clock=clock
    )
    _, arrived = _play(source, clock, 9.0)
    assert [name.split("-")[0] for name in arrived] == ["1", "2", "4", "6", "7", "0", "9", "5"]


def test_a_loop_numbers_its_passes_and_begins_at_its_row(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(
        _file(tmp_path), INPUTS, rate_hz=10, loop=True, loop_from_row=8, batch_size=4, delay_s=0.0, clock=clock
    )
    batches, labels = _play(source, clock, 1.4)
    assert _ids(batches)[ROWS:] == ["8-1", "9-1", "8-2", "9-2"]
    assert labels[-1] == "9-2=9"


def test_sample_time_goes_on_over_the_passes(tmp_path: Path) -> None:
    clock = Clock()
    times = 50.0 + 2.0 * np.arange(ROWS)
    source = ReplaySource(
        _file(tmp_path, time=times), INPUTS, rate_hz=10, loop=True, loop_from_row=5, batch_size=5, clock=clock
    )
    batches, _ = _play(source, clock, 2.1)
    seconds = [time_s for batch in batches for time_s in batch.times]
    assert seconds == [50.0 + 2.0 * number for number in range(len(seconds))]


def test_a_later_first_pass_gives_other_ids_and_later_times(tmp_path: Path) -> None:
    clock = Clock()
    source = ReplaySource(_file(tmp_path), INPUTS, rate_hz=10, batch_size=10, first_pass=3, clock=clock)
    (batch,), _ = _play(source, clock, 1.0)
    assert batch.ids[0] == "0-3"
    assert batch.times[0] == pytest.approx(3.0)


def test_ids_groups_and_holdout_marks_come_from_the_file(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        id=np.array([f"w{row}" for row in range(ROWS)]),
        group=np.arange(ROWS) // 5,
        holdout=np.arange(ROWS) >= 7,
    )
    clock = Clock()
    (batch,), _ = _play(ReplaySource(path, INPUTS, rate_hz=10, batch_size=10, clock=clock), clock, 1.0)
    assert batch.ids[:2] == ["w0-0", "w1-0"]
    assert batch.groups == ["0"] * 5 + ["1"] * 5
    assert batch.holdouts == [False] * 7 + [True] * 3


def test_a_read_waits_no_longer_than_its_timeout_and_close_ends_it(tmp_path: Path) -> None:
    source = ReplaySource(_file(tmp_path), INPUTS, rate_hz=0.001, batch_size=2)
    begin_s = time.monotonic()
    read = source.read(0.05)
    assert read is not None
    assert read.samples is None
    assert time.monotonic() - begin_s < 5.0
    closer = threading.Timer(0.1, source.close)
    closer.start()
    assert source.read(60.0) is None
    closer.join()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"rate_hz": 0.0}, "0.0 Hz"),
        ({"rate_hz": math.nan}, "nan Hz"),
        ({"batch_size": 0}, "batches of 0"),
        ({"delay_s": -1.0}, "delay -1.0"),
        ({"loop_from_row": ROWS}, "loop_from_row = 10"),
    ],
)
def test_wrong_numbers_are_named(tmp_path: Path, wrong: dict[str, float], problem: str) -> None:
    settings = {"rate_hz": 10.0} | wrong
    with pytest.raises(ConfigError, match=problem):
        ReplaySource(_file(tmp_path), INPUTS, **settings)  # type: ignore[arg-type]  # numbers of either kind
