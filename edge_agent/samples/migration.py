"""Stores of versions before chunks: their recent samples had a row each."""

import contextlib
from itertools import groupby

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, Row
from edge_agent.samples.chunk import PART_NUMBERS, Chunk
from edge_agent.samples.chunk_table import LOST
from edge_agent.samples.recent import Recent
from edge_agent.samples.record import Part
from edge_agent.samples.segments import Segments
from edge_agent.samples.tables import PASSED, last_number

SAMPLES_A_STEP = 256
_log = structlog.get_logger(__name__)


def move_old_rows(db: Database, segments: Segments) -> None:
    """Pack the recent samples of an older store into chunks, in steps that are a transaction each.

    Features are synced before their rows go; a step that was cut off is done again at the next start. Afterwards the
    file gives back its room.

    Raises:
        StorageError: the disk refuses; the rest is done at the next start.
    """
    moved, recent = 0, None
    while rows := _next(db):
        rows = [(*row[:4], row[4] if row[12] else LOST, *row[5:12], row[12] or b"") for row in rows]
        with db.transaction():
            recent = recent or Recent(db, segments)
            for _, members in groupby(rows, key=lambda row: (row[4], row[5], len(row[7]), len(row[12]))):
                _pack(recent, list(members))
            recent.sync()
            db.execute_many("DELETE FROM sample WHERE seq = ?", [(row[0],) for row in rows])
        moved += len(rows)
    if moved:
        _log.info("store_converted", samples=moved)
        with contextlib.suppress(StorageError):  # the room is given back at a later time or never: it is only room
            db.shrink()


def _next(db: Database) -> list[Row]:
    return db.query(
        "SELECT seq, id, time_s, part, layout, model, added_s, output, label, arrival, task, stage, data"
        " FROM sample LEFT JOIN features USING (seq)"
        " WHERE seq > ? ORDER BY seq LIMIT ?",
        (last_number(db, PASSED), SAMPLES_A_STEP),
    )


def _pack(recent: Recent, rows: list[Row]) -> None:
    """Rows of one layout and model; their numbers may have gaps."""
    for _, members in groupby(enumerate(rows), key=lambda entry: entry[1][0] - entry[0]):
        part = [row for _, row in members]
        recent.add(_chunk(part), _matrix(part, 7).view("<f4"), [_matrix(part, 12)])


def _chunk(rows: list[Row]) -> Chunk:
    chunk = Chunk.made(
        rows[0][0],
        rows[0][4],
        rows[0][5],
        len(rows[0][12]),
        [row[1] for row in rows],
        [row[10] for row in rows] if any(row[10] for row in rows) else [],
        np.array([row[2] for row in rows], np.float64),
        np.array([row[6] for row in rows], np.float64),
        np.array([PART_NUMBERS[Part(row[3])] for row in rows], np.uint8),
    )
    chunk.arrivals = np.array([row[9] or 0 for row in rows], np.int64)
    chunk.labels = np.array([row[8] or 0 for row in rows], np.float64)
    chunk.whole = np.array([isinstance(row[8], int) for row in rows], np.uint8)
    chunk.stages = np.array([row[11] for row in rows], np.uint8)
    return chunk


def _matrix(rows: list[Row], column: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(row[column] for row in rows), np.uint8).reshape(len(rows), len(rows[0][column]))
