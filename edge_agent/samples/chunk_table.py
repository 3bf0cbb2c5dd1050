"""Chunks in the database: a row of what was served, and one of what changes later."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.chunk import Chunk, seal_outputs

LOST = 0
"""Number of no input layout: that of samples whose features are lost."""
_COLUMNS = "chunk.first, layout, model, segment, start, checksum, row_bytes, served, data"


def read_chunks(db: Database) -> tuple[list[Chunk], list[tuple[int, str]]]:
    """All chunks in order, and the numbers of those that are not what was written, with what is wrong."""
    chunks: list[Chunk] = []
    spoilt: list[tuple[int, str]] = []
    for row in db.query(f"SELECT {_COLUMNS} FROM chunk LEFT JOIN joined USING (first) ORDER BY chunk.first"):
        try:
            chunks.append(Chunk.read(row))
        except (DataError, ValueError, TypeError, LookupError) as error:
            spoilt.append((row[0], str(error)))
    return chunks, spoilt


def write_chunk(db: Database, chunk: Chunk, outputs: NDArray[np.float32]) -> None:
    """A new chunk, or one that has grown; inside a transaction, as all that follow."""
    place = (chunk.first, chunk.layout, chunk.model, chunk.segment, chunk.start, chunk.checksum, chunk.row_bytes)
    db.execute(
        "INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*place, chunk.served(), seal_outputs(outputs, chunk.first)),
    )
    db.execute("INSERT OR REPLACE INTO joined VALUES (?, ?)", (chunk.first, chunk.joined()))


def write_joined(db: Database, chunks: Iterable[Chunk]) -> None:
    """What labels and retention have changed of chunks."""
    db.execute_many("UPDATE joined SET data = ? WHERE first = ?", [(chunk.joined(), chunk.first) for chunk in chunks])


def mark_lost(db: Database, chunk: Chunk) -> None:
    """The features of a chunk are lost."""
    chunk.layout = LOST
    db.execute("UPDATE chunk SET layout = ?, served = ? WHERE first = ?", (LOST, chunk.served(), chunk.first))


def delete_chunk(db: Database, first: int) -> None:
    """The chunk of that number is stored no more."""
    db.execute("DELETE FROM chunk WHERE first = ?", (first,))
    db.execute("DELETE FROM joined WHERE first = ?", (first,))
