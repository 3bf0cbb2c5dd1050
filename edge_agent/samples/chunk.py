"""Samples of one commit, packed: what was served and what has come of it, in a few columns with checksums."""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Row
from edge_agent.samples.marks import Mark
from edge_agent.samples.record import Part
from edge_agent.samples.tables import Stage

PARTS = tuple(Part)
PART_NUMBERS = {part: number for number, part in enumerate(PARTS)}
_HEAD = struct.Struct("<III")
_PLACE = struct.Struct("<7q")
_CHECKSUM_BYTES = 4
_SERVED_BYTES, _JOINED_BYTES = 17, 18


@dataclass(slots=True, eq=False)
class Chunk:
    """Samples with insertion numbers side by side, all served by one model.

    Attributes:
        first: the lowest insertion number.
        layout, model: numbers of the input layout, and of what served.
        segment, start, checksum: where the features lie (see :class:`Segments`), and their CRC-32.
        row_bytes: of the features of one sample.
        ids, tasks: n entries; no tasks where no sample names one.
        times, added_s: (n,) float64.
        parts: (n,) uint8, places in ``PARTS``.
        arrivals: (n,) int64 arrival numbers of the labels; 0: none has come.
        labels: (n,) float64; ``whole``: (n,) uint8, whether it is a class number.
        stages: (n,) uint8, :class:`Stage`.
        oldest_s: no sample that waits for its label was added before.
        aside: whether one may have been given up before its label came.
        marks: checksums on the way through the features; None: of the whole only, after a start.
        hashes: (n,) of the ids (``split.hashes_of``); None: not known.
    """

    first: int
    layout: int
    model: int
    segment: int
    start: int
    checksum: int
    row_bytes: int
    ids: list[str]
    tasks: list[str | None]
    times: NDArray[np.float64]
    added_s: NDArray[np.float64]
    parts: NDArray[np.uint8]
    arrivals: NDArray[np.int64]
    labels: NDArray[np.float64]
    whole: NDArray[np.uint8]
    stages: NDArray[np.uint8]
    oldest_s: float = -np.inf
    aside: bool = True
    marks: list[Mark] | None = None
    hashes: NDArray[np.uint64] | None = None

    @property
    def end(self) -> int:
        """The insertion number after the last."""
        return self.first + len(self.ids)

    @classmethod
    def made(
        cls,
        first: int,
        layout: int,
        model: int,
        row_bytes: int,
        ids: list[str],
        tasks: list[str | None],
        times: NDArray[np.float64],
        added_s: NDArray[np.float64],
        parts: NDArray[np.uint8],
    ) -> Self:
        """New samples; no label has come, and where their features lie is to be set."""
        n = len(ids)
        return cls(
            first,
            layout,
            model,
            0,
            0,
            0,
            row_bytes,
            ids,
            tasks,
            times,
            added_s,
            parts,
            arrivals=np.zeros(n, np.int64),
            labels=np.zeros(n),
            whole=np.zeros(n, np.uint8),
            stages=np.zeros(n, np.uint8),
            oldest_s=float(added_s.min()),
            aside=False,
        )

    @classmethod
    def read(cls, row: Row) -> Self:
        """From a row of :func:`edge_agent.samples.chunk_table.read_chunks`.

        Raises:
            DataError: a checksum does not fit, or the columns are not of one length.
        """
        served, joined = row[7:]
        body, first = opened(served, _PLACE.pack(*row[:7])), row[0]
        n, ids_bytes, tasks_bytes = _HEAD.unpack_from(body)
        at = _HEAD.size
        if len(body) != at + _SERVED_BYTES * n + ids_bytes + tasks_bytes:
            raise DataError("what was served is of another length")
        times, added_s = np.frombuffer(body, "<f8", 2 * n, at).reshape(2, n)
        at += 16 * n
        parts = np.frombuffer(body, np.uint8, n, at)
        names = body[at + n : at + n + ids_bytes].decode("utf-8", "surrogatepass")
        ids = names.split("\n") if n else []
        tasks = json.loads(body[at + n + ids_bytes :]) if tasks_bytes else []
        if len(ids) != n or len(tasks) not in (0, n) or (n and int(parts.max()) >= len(PARTS)):
            raise DataError("columns are not of one length")
        numbers: tuple[int, int, int, int, int, int, int] = row[:7]
        return cls(*numbers, ids, tasks, times, added_s, parts, *_joined(joined, first, n))

    def served(self) -> bytes:
        """The columns that never change."""
        ids = "\n".join(self.ids).encode("utf-8", "surrogatepass")
        tasks = json.dumps(self.tasks).encode() if self.tasks else b""
        head = _HEAD.pack(len(self.ids), len(ids), len(tasks))
        body = b"".join((head, self.times.tobytes(), self.added_s.tobytes(), self.parts.tobytes(), ids, tasks))
        place = (self.first, self.layout, self.model, self.segment, self.start, self.checksum, self.row_bytes)
        return sealed(body, _PLACE.pack(*place))

    def joined(self) -> bytes:
        """The columns that labels and retention change."""
        columns = (self.arrivals, self.labels, self.whole, self.stages)
        return sealed(b"".join(column.tobytes() for column in columns), _number(self.first))

    def grown(self, more: "Chunk") -> None:
        """Take up the samples that follow these, and whose features do."""
        tasks = [*(self.tasks or [None] * len(self.ids)), *(more.tasks or [None] * len(more.ids))]
        self.tasks = tasks if self.tasks or more.tasks else []
        self.ids = [*self.ids, *more.ids]
        for name in ("times", "added_s", "parts", "arrivals", "labels", "whole", "stages"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
        self.checksum, self.marks = more.checksum, more.marks
        known = None if self.hashes is None or more.hashes is None else np.concatenate([self.hashes, more.hashes])
        self.hashes = known
        self.oldest_s = min(self.oldest_s, more.oldest_s)
        self.aside = self.aside or more.aside

    def label(self, row: int) -> float | int:
        """The label of a sample that has one."""
        value = float(self.labels[row])
        return int(value) if self.whole[row] else value

    def label_list(self, rows: NDArray[np.intp]) -> list[float | int]:
        """The labels of samples that have one."""
        values, whole = self.labels[rows], self.whole[rows]
        if whole.all():
            integers: list[float | int] = values.astype(np.int64).tolist()
            return integers
        return [int(value) if is_whole else value for value, is_whole in zip(values.tolist(), whole, strict=True)]

    def rows_of(self, part: int, first: int, task: str | None) -> NDArray[np.intp]:
        """The rows of a part from insertion number ``first`` on that are not gone; ``task``: of that one alone."""
        begin = max(0, first - self.first)
        fit = (self.parts[begin:] == part) & (self.stages[begin:] != Stage.GONE)
        rows = begin + np.flatnonzero(fit)
        return rows if task is None else rows[[self.task(row) == task for row in rows.tolist()]]

    def task(self, row: int) -> str | None:
        """The task that a sample names."""
        return self.tasks[row] if self.tasks else None


def sealed(body: bytes, context: bytes) -> bytes:
    """``body`` with a checksum that also covers what stands beside it."""
    return body + zlib.crc32(context, zlib.crc32(body)).to_bytes(_CHECKSUM_BYTES, "little")


def opened(blob: bytes, context: bytes) -> bytes:
    """What :func:`sealed` closed.

    Raises:
        DataError: it is not what was written.
    """
    body, checksum = blob[:-_CHECKSUM_BYTES], blob[-_CHECKSUM_BYTES:]
    if zlib.crc32(context, zlib.crc32(body)).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise DataError("the checksum does not fit")
    return body


def seal_outputs(outputs: NDArray[np.float32], first: int) -> bytes:
    """(n, k) primary outputs as they are stored."""
    return sealed(outputs.tobytes(), _number(first))


def open_outputs(blob: bytes, first: int, n: int) -> NDArray[np.float32]:
    """(n, k) primary outputs.

    Raises:
        DataError: they are not what was written.
    """
    body = opened(blob, _number(first))
    if len(body) % (4 * n):
        raise DataError("the outputs are of another length")
    return np.frombuffer(body, "<f4").reshape(n, -1)


def _joined(
    blob: bytes, first: int, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.uint8], NDArray[np.uint8]]:
    body = opened(blob, _number(first))
    if len(body) != _JOINED_BYTES * n:
        raise DataError("the labels are of another length")
    arrivals = np.frombuffer(body, "<i8", n).copy()
    labels = np.frombuffer(body, "<f8", n, 8 * n).copy()
    whole = np.frombuffer(body, np.uint8, n, 16 * n).copy()
    stages = np.frombuffer(body, np.uint8, n, 17 * n).copy()
    if n and int(stages.max()) > max(Stage):
        raise DataError("a sample is nowhere in the store")
    return arrivals, labels, whole, stages


def _number(first: int) -> bytes:
    return first.to_bytes(8, "little")
