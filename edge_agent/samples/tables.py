"""The sample store's tables, and its running numbers."""

from enum import IntEnum

from edge_agent.link.database import Database

COMPONENT = "samples"
SAMPLE = "sample"
ARRIVAL = "arrival"
PASSED = "passed"

# Append only: a statement already applied somewhere is never edited.
TABLES = (
    "CREATE TABLE sequence (name TEXT PRIMARY KEY, last INTEGER NOT NULL)",
    "CREATE TABLE layout (layout INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE)",
    """CREATE TABLE model (
        model INTEGER PRIMARY KEY,
        bundle TEXT NOT NULL, weights TEXT NOT NULL, version INTEGER NOT NULL, cohort TEXT NOT NULL,
        UNIQUE (bundle, weights, version, cohort)
    )""",
    # `label` has no type: class numbers stay integers and targets stay reals.
    """CREATE TABLE sample (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        time_s REAL NOT NULL,
        part TEXT NOT NULL,
        layout INTEGER NOT NULL,
        model INTEGER NOT NULL,
        added_s REAL NOT NULL,
        output BLOB NOT NULL,
        label,
        arrival INTEGER
    )""",
    # Features lie apart, so that a label's arrival does not rewrite them.
    """CREATE TABLE features (
        seq INTEGER PRIMARY KEY REFERENCES sample (seq) ON DELETE CASCADE,
        data BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX sample_arrival ON sample (arrival) WHERE arrival IS NOT NULL",
    "CREATE INDEX sample_pending ON sample (added_s) WHERE arrival IS NULL",
    "CREATE INDEX sample_usable ON sample (part, layout, seq) WHERE arrival IS NOT NULL",
    "CREATE TABLE early_label (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, value, added_s REAL NOT NULL)",
    "CREATE TABLE origin (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL)",
    "ALTER TABLE sample ADD COLUMN task TEXT",
    "ALTER TABLE sample ADD COLUMN stage INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sample ADD COLUMN stratum INTEGER",
    "ALTER TABLE sample ADD COLUMN draw INTEGER",
    "DROP INDEX sample_usable",
    "DROP INDEX sample_pending",
    "CREATE INDEX sample_usable ON sample (part, layout, stage, seq) WHERE arrival IS NOT NULL",
    "CREATE INDEX sample_pending ON sample (added_s) WHERE arrival IS NULL AND stage = 0",
    "CREATE INDEX sample_unlabelled ON sample (arrival, seq) WHERE stage = 2",
    "CREATE INDEX sample_kept ON sample (stratum, draw) WHERE stage = 1",
    """CREATE TABLE stratum (
        stratum INTEGER PRIMARY KEY,
        part TEXT NOT NULL, layout INTEGER NOT NULL, task TEXT NOT NULL, class INTEGER NOT NULL,
        seen INTEGER NOT NULL, held INTEGER NOT NULL, threshold INTEGER NOT NULL,
        UNIQUE (part, layout, task, class)
    )""",
    "DROP INDEX sample_pending",
    # The recent samples lie in chunks; only those that outlast them have rows in `sample`.
    """CREATE TABLE chunk (
        first INTEGER PRIMARY KEY,
        layout INTEGER NOT NULL, model INTEGER NOT NULL,
        segment INTEGER NOT NULL, start INTEGER NOT NULL, checksum INTEGER NOT NULL, row_bytes INTEGER NOT NULL,
        served BLOB NOT NULL, outputs BLOB NOT NULL
    )""",
    # Labels lie apart, so that their arrival does not rewrite what was served.
    "CREATE TABLE joined (first INTEGER PRIMARY KEY, data BLOB NOT NULL)",
)


class Stage(IntEnum):
    """Where in the store a sample is: among the newest, in the reservoir, kept though its label never came, nowhere."""

    RECENT = 0
    KEPT = 1
    UNLABELLED = 2
    GONE = 3


def take_numbers(db: Database, name: str, count: int) -> int:
    """The first of ``count`` numbers that were never given out; inside a transaction."""
    last = last_number(db, name)
    set_number(db, name, last + count)
    return last + 1


def last_number(db: Database, name: str) -> int:
    """The highest number given out; 0 at the start."""
    rows = db.query("SELECT last FROM sequence WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else 0


def raise_number(db: Database, name: str, floor: int) -> None:
    """Give out no number up to ``floor`` again; inside a transaction."""
    if last_number(db, name) < floor:
        set_number(db, name, floor)


def set_number(db: Database, name: str, last: int) -> None:
    """``last`` is the highest number given out; inside a transaction."""
    db.execute("INSERT INTO sequence VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET last = excluded.last", (name, last))
