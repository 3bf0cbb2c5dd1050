"""Labelled data files: NPZ with an array per graph input, ``label`` and optional columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.features import check_features
from edge_agent.model.npz_damage import DAMAGE
from edge_agent.wire.manifest import TensorSpec
from server_bridge.bundles.checks import DATA_COLUMNS

_ZIP_MAGIC = b"PK"
_WRITE_AGAIN = "write it with numpy.savez, without objects"
_AN_NPZ_FILE = "give the path of an .npz file: one array for each input, and `label` (docs/data.md)"
_NUMBER_CLASSES = "classes are counted from 0, one integer a row; leave out rows without a label"


@dataclass(frozen=True)
class LabelledData:
    """Samples and labels, without the holdout.

    Args:
        features: an array (n, ...) per graph input.
        labels: (n,) class numbers or targets.
        tasks: (n,) the names of the samples' tasks, "" where none is named; None if the file has none.
        times: (n,) float64 seconds, finite; None if the file has none.
        groups: (n,) numbers of the samples' groups; None if the file has none.
    """

    features: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    tasks: NDArray[np.str_] | None = None
    times: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: NDArray[np.int64]) -> "LabelledData":
        """Some rows, in the order chosen."""
        features = {name: array[chosen] for name, array in self.features.items()}
        tasks = None if self.tasks is None else self.tasks[chosen]
        times = None if self.times is None else self.times[chosen]
        groups = None if self.groups is None else self.groups[chosen]
        return LabelledData(features, self.labels[chosen], tasks, times, groups)


def read_data(
    path: Path, inputs: Sequence[TensorSpec], classes: int | None, ignored: int | None = None
) -> LabelledData:
    """Read a data file; rows whose ``holdout`` is true, or whose label stands for none, are left out.

    Args:
        path: an NPZ file.
        inputs: the graph's inputs.
        classes: number of classes; None for a regression.
        ignored: a label that is no class and stands for none; None: there is no such.

    Raises:
        DataError: not an NPZ file; an array is absent, unknown, misshapen, wrongly typed or not finite; a label
            is out of range (each named).
    """
    arrays = _load(path)
    for name in (*(spec.name for spec in inputs), "label"):
        if name not in arrays:
            raise DataError(f"{path} has no array {name!r}", f"it has: {', '.join(sorted(arrays)) or 'none'}")
    for name in sorted(set(arrays) - {spec.name for spec in inputs} - set(DATA_COLUMNS)):
        raise DataError(f"{path} has array {name!r}, unknown to the model", f"known: {', '.join(DATA_COLUMNS)}")
    features = {spec.name: arrays[spec.name] for spec in inputs}
    try:
        size = check_features(features, inputs)
        _refuse_values(features)
        labels = _labels(arrays["label"], size, classes, ignored)
        tasks = _tasks(arrays.get("task"), size)
        times, groups = _times(arrays.get("time"), size), _groups(arrays.get("group"), size)
    except DataError as error:
        raise DataError(f"{path}: {error.problem}", error.hint) from None
    unlabelled = np.zeros(size, np.bool_) if ignored is None else labels == ignored
    kept = np.flatnonzero(~(_holdout(path, arrays, size) | unlabelled))
    if len(kept) == 0:
        raise DataError(f"{path} has no labelled rows besides the holdout")
    return LabelledData(features, labels, tasks, times, groups).rows(kept)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    key = "the file"
    arrays: dict[str, NDArray[Any]] = {}
    if path.is_dir():
        raise DataError(f"{path} is a directory", _AN_NPZ_FILE)
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
                raise DataError(f"{path} is not an NPZ file", _WRITE_AGAIN)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                for key in archive.files:
                    arrays[key] = archive[key]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", _AN_NPZ_FILE) from None
    except DAMAGE as error:
        raise DataError(f"{path}: {key} cannot be read: {error}", _WRITE_AGAIN) from error
    return arrays


def _refuse_values(features: dict[str, NDArray[Any]]) -> None:
    for name, array in features.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
            raise DataError(f"array {name!r} is not finite in row {row}")


def _labels(labels: NDArray[Any], size: int, classes: int | None, ignored: int | None) -> NDArray[Any]:
    if labels.shape != (size,):
        raise DataError(f"array 'label' has shape {list(labels.shape)}, [{size}] is needed")
    if classes is None:
        return _targets(labels)
    if labels.dtype.kind not in "iu":
        kind = "text" if labels.dtype.kind in "US" else str(labels.dtype)
        raise DataError(f"array 'label' is {kind}, whole class numbers are needed", _NUMBER_CLASSES)
    outside = (labels < 0) | (labels >= classes)
    if ignored is not None:
        outside &= labels != ignored
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise DataError(f"label {labels[row]} in row {row} is outside 0..{classes - 1}", _NUMBER_CLASSES)
    return labels.astype(np.int64)


def _tasks(tasks: NDArray[Any] | None, size: int) -> NDArray[np.str_] | None:
    if tasks is None:
        return None
    if tasks.shape != (size,) or tasks.dtype.kind not in "U":
        raise DataError(f"array 'task' is {tasks.dtype} {list(tasks.shape)}, text [{size}] is needed")
    return tasks


def _times(times: NDArray[Any] | None, size: int) -> NDArray[np.float64] | None:
    if times is None:
        return None
    if times.shape != (size,) or times.dtype.kind not in "fiu":
        raise DataError(f"array 'time' is {times.dtype} {list(times.shape)}, seconds [{size}] are needed")
    seconds: NDArray[np.float64] = times.astype(np.float64)
    if not np.isfinite(seconds).all():
        row = int(np.flatnonzero(~np.isfinite(seconds))[0])
        raise DataError(f"array 'time' is {seconds[row]} in row {row}", "give seconds, or leave the array out")
    return seconds


def _groups(groups: NDArray[Any] | None, size: int) -> NDArray[np.int64] | None:
    if groups is None:
        return None
    if groups.shape != (size,) or groups.dtype.kind not in "USiu":
        raise DataError(f"array 'group' is {groups.dtype} {list(groups.shape)}, text or numbers [{size}] are needed")
    numbers: NDArray[np.int64] = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return numbers


def _targets(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind not in "fiu":
        raise DataError(f"array 'label' is {labels.dtype}, numbers are needed")
    with np.errstate(over="ignore"):
        targets: NDArray[np.float32] = labels.astype(np.float32)
    if not np.isfinite(targets).all():
        row = int(np.flatnonzero(~np.isfinite(targets))[0])
        raise DataError(f"the label {labels[row]} in row {row} is not finite as float32")
    return targets


def _holdout(path: Path, arrays: dict[str, NDArray[Any]], size: int) -> NDArray[np.bool_]:
    holdout = arrays.get("holdout")
    if holdout is None:
        return np.zeros(size, dtype=np.bool_)
    if holdout.dtype != np.bool_ or holdout.shape != (size,):
        raise DataError(f"{path}: array 'holdout' is {holdout.dtype} {list(holdout.shape)}, bool [{size}] is needed")
    return holdout
