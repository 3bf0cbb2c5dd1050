"""A recording: samples in the order of their rows, from an NPZ or a CSV file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.samples.record import TIME_LIMIT_S, FeatureArrays, is_sample_id
from edge_agent.sources.csv_columns import CsvColumns, read_csv
from edge_agent.sources.npz import read_npz
from edge_agent.wire.manifest import TensorSpec, is_task_name

ID_CHARS = 100


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of a file, checked.

    Attributes:
        features: (n, ...) per model input, in the model's dtype.
        labels: (n,) numbers, NaN for a row that never gets one; None: no row does.
        delays: (n,) seconds >= 0 from sample to label, NaN: never; None: the player's default.
        times: (n,) seconds, finite; None: the player's schedule.
        ids: n different names; None: the row numbers.
        tasks: the task of each row, None where it names none.
    """

    rows: int
    features: FeatureArrays
    labels: NDArray[Any] | None
    groups: list[str] | None
    holdouts: NDArray[np.bool_] | None
    delays: NDArray[np.float64] | None
    times: NDArray[np.float64] | None
    ids: list[str] | None
    tasks: list[str | None] | None = None


def read_recording(path: Path, inputs: Sequence[TensorSpec], columns: CsvColumns | None = None) -> Recording:
    """Read and check a recording.

    Args:
        path: ``*.npz`` with an array per model input and optionally ``label``, ``group``, ``holdout``,
            ``delay``, ``time``, ``id``, ``task``; or ``*.csv`` with a header row.
        inputs: the model's.
        columns: which CSV columns are what; None: the names above, every other column being a
            feature of the only input.

    Raises:
        ConfigError: the file cannot be read or does not fit (file, key and remedy named).

    Cost: the file's arrays once in memory, in the model's dtypes.
    """
    return recording_of(path, read_arrays(path, inputs, columns), inputs)


def read_arrays(path: Path, inputs: Sequence[TensorSpec], columns: CsvColumns | None = None) -> dict[str, NDArray[Any]]:
    """The known arrays of a file, as they are.

    Raises:
        ConfigError: it cannot be read, or a cell of a CSV file is no number (line and column named).
    """
    if path.suffix == ".npz":
        return read_npz(path, [spec.name for spec in inputs])
    if path.suffix == ".csv":
        return read_csv(path, inputs, columns)
    raise ConfigError(f"recording {path} is neither .npz nor .csv", "convert it or correct [source] path")


def recording_of(path: Path, arrays: dict[str, NDArray[Any]], inputs: Sequence[TensorSpec]) -> Recording:
    """The arrays of a file, checked; they are taken out of ``arrays``.

    Raises:
        ConfigError: one does not fit (file, key and remedy named).
    """
    return _Checks(path, arrays).recording(inputs)


class _Checks:
    """Each key against its rule; a violation names the file and the key."""

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
        self._path = path
        self._arrays = arrays
        self._rows = 0

    def recording(self, inputs: Sequence[TensorSpec]) -> Recording:
        first = inputs[0].name
        if first not in self._arrays:
            raise self._wrong(first, "is missing", "the model needs an array of this name")
        self._rows = len(self._arrays[first]) if self._arrays[first].ndim else 0
        if self._rows == 0:
            raise self._wrong(first, "has no rows", "give at least one sample")
        features = {spec.name: self._feature(spec) for spec in inputs}
        return Recording(
            rows=self._rows,
            features=features,
            labels=self._column("label", "biuf"),
            groups=self._texts("group"),
            holdouts=self._flags("holdout"),
            delays=self._seconds("delay", may_be_nan=True),
            times=self._seconds("time", may_be_nan=False),
            ids=self._ids(),
            tasks=self._tasks(),
        )

    def _feature(self, spec: TensorSpec) -> NDArray[Any]:
        array = self._arrays.pop(spec.name, None)
        if array is None:
            raise self._wrong(spec.name, "is missing", "the model needs an array of this name")
        if array.dtype.kind not in "biuf":
            raise self._wrong(spec.name, f"is {array.dtype}", "give numbers")
        wanted = spec.shape[1:]
        fits = array.ndim == len(spec.shape) and all(
            isinstance(size, str) or size == found for size, found in zip(wanted, array.shape[1:], strict=True)
        )
        if not fits or len(array) != self._rows:
            raise self._wrong(spec.name, f"has shape {list(array.shape)}", f"give {[self._rows, *wanted]}")
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array, dtype=np.dtype(spec.dtype))

    def _column(self, key: str, kinds: str) -> NDArray[Any] | None:
        array = self._arrays.pop(key, None)
        if array is None:
            return None
        if array.shape != (self._rows,):
            raise self._wrong(key, f"has shape {list(array.shape)}", f"give [{self._rows}], one entry a row")
        if array.dtype.kind not in kinds:
            raise self._wrong(
                key, f"is {array.dtype}", "give numbers" if "f" in kinds else "give text or whole numbers"
            )
        return array

    def _texts(self, key: str) -> list[str] | None:
        array = self._column(key, "USiu")
        return None if array is None else [_text(entry) for entry in array.tolist()]

    def _flags(self, key: str) -> NDArray[np.bool_] | None:
        array = self._column(key, "biuf")
        if array is None:
            return None
        if not np.isin(array, (0, 1)).all():
            raise self._wrong(key, "has entries other than 0 and 1", "mark holdout rows with 1 (true)")
        return array.astype(np.bool_)

    def _seconds(self, key: str, *, may_be_nan: bool) -> NDArray[np.float64] | None:
        array = self._column(key, "iuf")
        if array is None:
            return None
        seconds = array.astype(np.float64)
        allowed = np.abs(seconds) < TIME_LIMIT_S
        if may_be_nan:
            allowed = (np.isfinite(seconds) & (seconds >= 0)) | np.isnan(seconds)
        if not allowed.all():
            row = int(np.flatnonzero(~allowed)[0])
            remedy = (
                "give finite seconds, >= 0, or NaN: never"
                if may_be_nan
                else "give seconds since 1970, not milliseconds"
            )
            raise self._wrong(key, f"is {seconds[row]} in row {row}", remedy)
        return seconds

    def _ids(self) -> list[str] | None:
        ids = self._texts("id")
        if ids is None:
            return None
        for row, name in enumerate(ids):
            if len(name) > ID_CHARS or not is_sample_id(name):
                remedy = f"give 1 to {ID_CHARS} characters, none a control character"
                raise self._wrong("id", f"is {name[:ID_CHARS]!r} in row {row}", remedy)
        if len(set(ids)) != len(ids):
            raise self._wrong("id", "repeats", "give every row its own id, or leave the key out")
        return ids

    def _tasks(self) -> list[str | None] | None:
        tasks = self._texts("task")
        for row, name in enumerate(tasks or ()):
            if name and not is_task_name(name):
                remedy = "give 1 to 64 of A-Z a-z 0-9 _ -, or nothing for the bundle's first task"
                raise self._wrong("task", f"is {name[:ID_CHARS]!r} in row {row}", remedy)
        return None if tasks is None else [name or None for name in tasks]

    def _wrong(self, key: str, problem: str, remedy: str) -> ConfigError:
        return ConfigError(f"recording {self._path}: {key!r} {problem}", remedy)


def _text(entry: object) -> str:
    return entry.decode("utf-8", "replace") if isinstance(entry, bytes) else str(entry)
