"""A long batch, predicted some samples a run."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.session import RUNTIME_ERRORS, Session, first_line

BOUND_BYTES = 16 * 1024
BOUND_RUNS = 16
"""Memory that stays bound spares a run 2 us of 5.6 for a tiny net. To bind it takes as long as ten runs spare, to copy
more than `BOUND_BYTES` there as much as it spares (measured)."""


class BoundRun:
    """A graph that runs again and again on arrays of the same shapes; belongs to one thread.

    Args:
        inputs, outputs: arrays of these names, shapes and types.
    """

    def __init__(
        self, session: Session, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
    ) -> None:
        self._inputs = {name: np.empty_like(array, order="C") for name, array in inputs.items()}
        self._outputs = [np.empty_like(array, order="C") for array in outputs.values()]
        self._session = session
        self._binding = session.native.io_binding()
        for name, array in self._inputs.items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for name, array in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))

    def through(
        self,
        features: Mapping[str, NDArray[Any]],
        into: Sequence[NDArray[Any]],
        *,
        start: int,
        run_rows: int,
        until_s: float,
    ) -> int:
        """Run over all whole runs from row ``start`` on; returns the row where it ended, for the time or the rows.

        Raises:
            DataError: onnxruntime refuses the values.
        """
        inputs = [(buffer, features[name]) for name, buffer in self._inputs.items()]
        outputs = list(zip(self._outputs, into, strict=True))
        run, binding, last = self._session.native.run_with_iobinding, self._binding, len(into[0]) - run_rows
        try:
            while start <= last and time.monotonic() < until_s:
                stop = start + run_rows
                for buffer, array in inputs:
                    buffer[...] = array[start:stop]
                run(binding)
                for buffer, array in outputs:
                    array[start:stop] = buffer
                start = stop
        except RUNTIME_ERRORS as error:
            raise DataError(f"{self._session.what} cannot run: {first_line(error)}") from error
        return start


def in_runs(
    session: Session,
    features: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    *,
    rows: int,
    run_rows: int,
    most_s: float,
) -> list[NDArray[Any]]:
    """Outputs of the first rows, ``run_rows`` a run; no run but the first begins when ``most_s`` have passed.

    Args:
        features: (rows, ...) each.

    Raises:
        DataError: onnxruntime refuses the values, or an output has not a row a sample.
    """
    until_s = time.monotonic() + most_s
    feeds = _rows_of(features, 0, run_rows)
    first = session.listed(feeds, wanted)
    done = min(rows, run_rows)
    _check_rows(first, done)
    whole = [np.empty((rows, *values.shape[1:]), values.dtype) for values in first]
    _put(whole, first, 0, done)
    if rows >= BOUND_RUNS * run_rows and sum(array.nbytes for array in feeds.values()) <= BOUND_BYTES:
        bound = BoundRun(session, feeds, dict(zip(wanted, first, strict=True)))
        done = bound.through(features, whole, start=done, run_rows=run_rows, until_s=until_s)
    while done < rows and time.monotonic() < until_s:
        stop = min(rows, done + run_rows)
        values = session.listed(_rows_of(features, done, stop), wanted)
        _check_rows(values, stop - done)
        _put(whole, values, done, stop)
        done = stop
    return [values[:done] for values in whole]


def _rows_of(features: Mapping[str, NDArray[Any]], start: int, stop: int) -> dict[str, NDArray[Any]]:
    return {name: array[start:stop] for name, array in features.items()}


def _put(whole: Sequence[NDArray[Any]], parts: Sequence[NDArray[Any]], start: int, stop: int) -> None:
    for values, part in zip(whole, parts, strict=True):
        values[start:stop] = part


def _check_rows(outputs: Sequence[NDArray[Any]], rows: int) -> None:
    for values in outputs:
        if not values.shape or len(values) != rows:
            raise DataError(f"predictions for {rows} samples have shape {list(values.shape)}")
