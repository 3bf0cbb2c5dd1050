"""What lies in a store's database, and how tests change it there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge_agent.link.database import Database, open_database
from edge_agent.samples.chunk import PART_NUMBERS, PARTS, Chunk
from edge_agent.samples.chunk_table import read_chunks
from edge_agent.samples.record import Part
from edge_agent.samples.tables import PASSED, Stage, last_number


@dataclass(frozen=True)
class Lying:
    """A sample as it lies in the store."""

    seq: int
    id: str
    part: str
    stage: int
    label: float | int | None


def lying(db: Database) -> list[Lying]:
    """Every sample, oldest first, in a chunk or in a row of its own."""
    rows = db.query("SELECT seq, id, part, stage, label, arrival FROM sample")
    found = [Lying(row[0], row[1], row[2], row[3], row[4] if row[5] else None) for row in rows]
    chunks, spoilt = read_chunks(db)
    assert not spoilt
    passed = last_number(db, PASSED)
    for chunk in chunks:
        for row, name in enumerate(chunk.ids):
            seq, stage = chunk.first + row, int(chunk.stages[row])
            if seq > passed and stage != Stage.GONE:
                label = chunk.label(row) if chunk.arrivals[row] else None
                found.append(Lying(seq, name, PARTS[chunk.parts[row]].value, stage, label))
    return sorted(found, key=lambda one: one.seq)


def rewrite(path: Path, change: Callable[[Chunk], None]) -> None:
    """Change what every chunk says of its samples' labels."""
    db = open_database(path)
    with db.transaction():
        for chunk in read_chunks(db)[0]:
            change(chunk)
            db.execute("UPDATE joined SET data = ? WHERE first = ?", (chunk.joined(), chunk.first))
    db.close()


def wrong_but_for_holdout(chunk: Chunk) -> None:
    """Every label of the train and proof parts is the next of three classes."""
    rows = chunk.parts != PART_NUMBERS[Part.HOLDOUT]
    chunk.labels[rows] = (chunk.labels[rows] + 1) % 3
