"""CSV files with a header row."""

import csv
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.sources.npz import COLUMN_KEYS
from edge_agent.wire.manifest import TensorSpec

_NUMBER_KEYS = ("label", "holdout", "delay", "time")
_TRUTHS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Which columns are what.

    Attributes:
        features: input name to its columns, in the order of the input's flattened features. An
            input left out, if it is the only one, takes every column that nothing else uses.
        keys: ``label``, ``group``, ``holdout``, ``delay``, ``time``, ``id``, ``task`` to their columns; a
            key left out is the column of its own name, if there is one.
        classes: what a label may say in words, as a number.
    """

    features: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)


def csv_header(path: Path) -> list[str]:
    """The names in the first line.

    Raises:
        ConfigError: absent, empty or not text.
    """
    with _lines(path) as rows:
        return next(iter(rows), [])


def read_csv(path: Path, inputs: Sequence[TensorSpec], columns: CsvColumns | None) -> dict[str, NDArray[Any]]:
    """The arrays of a CSV file, as an NPZ file would hold them. An empty cell is NaN; times may be ISO 8601.

    Raises:
        ConfigError: absent, not text, a column missing, or a cell that is no number (line and column named).
    """
    with _lines(path) as rows:
        return _read(path, rows, inputs, columns or CsvColumns())


@contextmanager
def _lines(path: Path) -> Iterator[Iterable[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield csv.reader(lines)
    except FileNotFoundError:
        raise ConfigError(f"recording {path} does not exist", "correct [source] path") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"recording {path} cannot be read ({error})", "save it as UTF-8 CSV") from None


def _read(
    path: Path, rows: Iterable[list[str]], inputs: Sequence[TensorSpec], columns: CsvColumns
) -> dict[str, NDArray[Any]]:
    lines = iter(rows)
    header = next(lines, [])
    _refuse_no_header(path, header)
    keys = _keys(path, header, columns)
    features = {spec.name: _feature_columns(path, header, spec, inputs, columns, keys) for spec in inputs}
    place_of = {column: place for place, column in enumerate(header)}
    places = {name: [place_of[column] for column in names] for name, names in features.items()}
    key_places = {key: place_of[column] for key, column in keys.items()}
    numbers = {name: array("f" if name in places else "d") for name in (*places, *_NUMBER_KEYS)}
    texts: dict[str, list[str]] = {key: [] for key in key_places if key not in _NUMBER_KEYS}
    count = 0
    for line, cells in enumerate(lines, start=2):
        if len(cells) != len(header):
            if not cells:
                continue
            problem = f"recording {path}, line {line}: {len(cells)} cells under {len(header)} columns"
            raise ConfigError(problem, "give every line a cell for each column of the first")
        for name, indices in places.items():
            numbers[name].extend(_number(path, line, header[index], cells[index]) for index in indices)
        for key, index in key_places.items():
            if key == "time":
                numbers[key].append(_seconds(path, line, header[index], cells[index]))
            elif key == "label" and cells[index] in columns.classes:
                numbers[key].append(columns.classes[cells[index]])
            elif key in _NUMBER_KEYS:
                numbers[key].append(_number(path, line, header[index], cells[index]))
            else:
                texts[key].append(cells[index])
        count += 1
    if count == 0:
        raise ConfigError(f"recording {path} has no rows", "give at least one sample")
    arrays: dict[str, NDArray[Any]] = {
        spec.name: _shaped(path, np.asarray(numbers[spec.name]), count, spec) for spec in inputs
    }
    arrays.update({key: np.asarray(numbers[key]) for key in key_places if key in _NUMBER_KEYS})
    arrays.update({key: np.asarray(entries, dtype=np.str_) for key, entries in texts.items()})
    return arrays


def _refuse_no_header(path: Path, header: Sequence[str]) -> None:
    if not header:
        raise ConfigError(f"recording {path} is empty", "its first line names the columns")
    if all(_is_number(cell) for cell in header):
        named = ", ".join(header[:3])
        raise ConfigError(
            f"recording {path} has no header: its first line is {named}, ...", "add a first line that names the columns"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _keys(path: Path, header: Sequence[str], columns: CsvColumns) -> dict[str, str]:
    if len(set(header)) != len(header):
        raise ConfigError(f"recording {path}: a column name repeats in the header", "give every column its own name")
    keys = {key: key for key in COLUMN_KEYS if key in header} | dict(columns.keys)
    for key, column in keys.items():
        if column not in header:
            raise ConfigError(f"recording {path}: column {column!r} for {key!r} is missing", f"it has {list(header)}")
    return keys


def _feature_columns(
    path: Path,
    header: Sequence[str],
    spec: TensorSpec,
    inputs: Sequence[TensorSpec],
    columns: CsvColumns,
    keys: Mapping[str, str],
) -> list[str]:
    if spec.name in columns.features:
        chosen = list(columns.features[spec.name])
        known = set(header)
        for column in chosen:
            if column not in known:
                raise ConfigError(
                    f"recording {path}: column {column!r} for input {spec.name!r} is missing", f"it has {list(header)}"
                )
        return chosen
    if len(inputs) > 1:
        raise ConfigError(f"recording {path}: the columns of input {spec.name!r} are not named", "map them, or use NPZ")
    return [column for column in header if column not in keys.values()]


def _shaped(path: Path, flat: NDArray[Any], count: int, spec: TensorSpec) -> NDArray[Any]:
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    width = len(flat) // count
    if len(sizes) != len(spec.shape) - 1 or math.prod(sizes) != width:
        raise ConfigError(
            f"recording {path}: {width} feature columns for input {spec.name!r} of shape {spec.shape}",
            "map exactly the columns that the model takes",
        )
    return flat.reshape(count, *sizes)


def _seconds(path: Path, line: int, column: str, cell: str) -> float:
    """A number, or a date and time as ISO 8601 has it, UTC where it names no zone."""
    if _is_number(cell) or not cell.strip():
        return _number(path, line, column, cell)
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        raise ConfigError(
            f"recording {path}, line {line}, column {column!r}: {cell[:40]!r} is neither seconds nor a date and time",
            "write seconds, or ISO 8601: 2014-03-01T08:30:00+01:00",
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _number(path: Path, line: int, column: str, cell: str) -> float:
    text = cell.strip().lower()
    if not text:
        return math.nan
    truth = _TRUTHS.get(text)
    if truth is not None:
        return truth
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"recording {path}, line {line}, column {column!r}: {cell[:40]!r} is no number", "correct the cell"
        ) from None
