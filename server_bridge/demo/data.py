"""Windows of the recordings, their split, and the NPZ files that training and gateways read.

Of each recording the first 60 % fits, 60-70 % calibrates, the last 30 % is holdout. A window
never crosses a border, so no sample of a holdout window was ever trained on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from server_bridge.demo.plan import GatewayPlan, remount
from server_bridge.demo.recordings import Recording

INPUT = "motion"
WINDOW = 100
STRIDE = 25
BLOCK_WINDOWS = 8
BUCKETS_PER_PASS = 6
# Labels mixed over a span of arrivals that fits in one monitor batch: a remount is a step, not a ramp.
DELAY_S = (0.2, 1.0)
MONITOR_BATCH = 64


class Part(StrEnum):
    """What a stretch of a recording is for."""

    FIT = "fit"
    CALIBRATION = "calibration"
    HOLDOUT = "holdout"


BORDERS = {Part.FIT: (0.0, 0.6), Part.CALIBRATION: (0.6, 0.7), Part.HOLDOUT: (0.7, 1.0)}


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows with their labels.

    Attributes:
        signal: (n, 6, 100) float32, raw sensor values.
        label: (n,) int64 class numbers.
        group: (n,) str, recording and block: overlapping windows mostly share one.
        holdout: (n,) bool.
    """

    signal: NDArray[np.float32]
    label: NDArray[np.int64]
    group: NDArray[np.str_]
    holdout: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: NDArray[np.intp]) -> "Windows":
        """The given rows, in that order."""
        return Windows(self.signal[rows], self.label[rows], self.group[rows], self.holdout[rows])


def windows_of(recordings: Iterable[Recording], parts: Sequence[Part]) -> Windows:
    """All windows of the given parts of the recordings.

    Raises:
        DataError: there is none.
    """
    signal, label, group, holdout = [], [], [], []
    for recording in recordings:
        for part in parts:
            for place, start in enumerate(_starts(len(recording.signal), part)):
                signal.append(recording.signal[start : start + WINDOW].T)
                label.append(recording.motion)
                group.append(f"{recording.name}-{part}-{place // BLOCK_WINDOWS}")
                holdout.append(part is Part.HOLDOUT)
    if not signal:
        raise DataError("no window: the recordings are shorter than a window", f"a window is {WINDOW} samples")
    return Windows(np.stack(signal), np.array(label, np.int64), np.array(group), np.array(holdout))


def _starts(length: int, part: Part) -> range:
    first, last = (int(length * border) for border in BORDERS[part])
    return range(first, last - WINDOW + 1, STRIDE)


def standardisation(fit: Windows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation per axis over the fit part, each (6,) float32, raw units."""
    mean = fit.signal.mean(axis=(0, 2), dtype=np.float64)
    deviation = fit.signal.std(axis=(0, 2), dtype=np.float64)
    return mean.astype(np.float32), deviation.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Stream:
    """What one gateway replays: a clean pass once, then the second pass for ever.

    Attributes:
        windows: both passes, in order.
        loop_from_row: first row of the second pass; the remount, where there is one.
    """

    windows: Windows
    loop_from_row: int

    @property
    def bucket_rows(self) -> int:
        """Rows of an accuracy bucket: a whole number of buckets makes a pass."""
        return self.loop_from_row // BUCKETS_PER_PASS


def make_stream(plan: GatewayPlan, recordings: Iterable[Recording], seed: int) -> Stream:
    """The stream of one gateway: every window of its subject, in another order each pass."""
    own = windows_of([r for r in recordings if r.subject == plan.subject], list(Part))
    rng = np.random.default_rng([seed, int(plan.id.rsplit("-", 1)[1])])
    clean, second = own.take(interleaved(own.holdout, rng)), own.take(interleaved(own.holdout, rng))
    signal = np.concatenate([clean.signal, remount(plan.family, second.signal)])
    label = np.concatenate([clean.label, second.label])
    group = np.concatenate([clean.group, second.group])
    holdout = np.concatenate([clean.holdout, second.holdout])
    return Stream(Windows(signal, label, group, holdout), len(clean))


def interleaved(holdout: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.intp]:
    """An order of the rows: shuffled, with the holdout rows spread evenly.

    The number of rows is made a multiple of :data:`BUCKETS_PER_PASS` by leaving out a few
    rows that are not holdout.
    """
    spare = len(holdout) % BUCKETS_PER_PASS
    held = rng.permutation(np.flatnonzero(holdout))
    others = rng.permutation(np.flatnonzero(~holdout))[spare:]
    places = np.concatenate([(np.arange(len(rows)) + rng.random()) / len(rows) for rows in (held, others)])
    return np.concatenate([held, others])[np.argsort(places, kind="stable")]


def write_stream(path: Path, stream: Stream, *, rate_hz: float, seed: int) -> None:
    """The NPZ that a gateway replays: inputs, labels and when they come."""
    windows = stream.windows
    rows = len(windows)
    delay = np.random.default_rng([seed, rows]).uniform(*DELAY_S, size=rows)
    np.savez(
        path,
        motion=windows.signal,
        label=windows.label,
        group=windows.group,
        holdout=windows.holdout,
        delay=delay,
        time=(np.arange(rows) + 0.5) / rate_hz,
    )


def write_samples(path: Path, windows: Windows) -> None:
    """The NPZ that fits or calibrates a bundle."""
    np.savez(path, motion=windows.signal, label=windows.label, group=windows.group)
