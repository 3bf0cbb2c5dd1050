"""Tables of the bridge's store. A change here needs a migration beside it."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
_ID = String(64)
_NAME = String(128)
_DIGEST = String(64)
_SERIAL = BigInteger().with_variant(Integer(), "sqlite")

COUNTERS = Table(
    "counters",
    METADATA,
    Column("name", _NAME, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

GATEWAYS = Table(
    "gateways",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("node_id", BigInteger, nullable=False, unique=True),
    Column("registered_s", Float(53), nullable=False),
    Column("ignored_s", Float(53)),
    Column("ignored_why", Text),
)

PRESENCE = Table(
    "presence",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("online", Boolean, nullable=False),
    Column("boot_id", _NAME, nullable=False),
    Column("connection", BigInteger, nullable=False),
    Column("changed_s", Float(53), nullable=False),
)

STATES = Table(
    "states",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("received_s", Float(53), nullable=False),
    Column("body", Text, nullable=False),
)

OUTBOX_MARKS = Table(
    "outbox_marks",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("epoch", _NAME, primary_key=True),
    Column("low", BigInteger, nullable=False),
    Column("above", Text, nullable=False),
    Column("seen_s", Float(53), nullable=False),
    Column("setbacks", BigInteger, nullable=False, server_default="0"),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("gateway", _ID, nullable=False),
    Column("epoch", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("received_s", Float(53), nullable=False),
    Column("time_s", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("gateway", "epoch", "sequence", name="uq_events_identity"),
    Index("ix_events_kind", "kind", "id"),
    sqlite_autoincrement=True,
)

FLAGS = Table(
    "flags",
    METADATA,
    Column("flag_id", _DIGEST, primary_key=True),
    Column("gateway", _ID, nullable=False, index=True),
    Column("received_s", Float(53), nullable=False),
    Column("bundle", _DIGEST, nullable=False),
    Column("weights", _DIGEST, nullable=False),
    Column("weights_version", BigInteger, nullable=False),
    Column("cohort", _NAME, nullable=False),
    Column("trainable_samples", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("adaptation", _ID),
    Column("round", Integer),
)

COUNTS = Table(
    "counts",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("weights", _DIGEST, primary_key=True),
    Column("bucket_s", Float(53), primary_key=True),
    Column("bucket", BigInteger, primary_key=True),
    Column("weights_version", BigInteger, nullable=False),
    Column("cohort", _NAME, nullable=False),
    Column("labelled", BigInteger, nullable=False),
    Column("right", BigInteger, nullable=False),
    Column("loss_sum", Float(53), nullable=False),
    Column("epoch", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

COMMANDS = Table(
    "commands",
    METADATA,
    Column("command_id", _NAME, primary_key=True),
    Column("gateway", _ID, nullable=False, index=True),
    Column("action", Text, nullable=False),
    Column("duration_s", Float(53), nullable=False),
    Column("issued_s", Float(53), nullable=False),
    Column("ended_s", Float(53)),
    Column("status", String(16), nullable=False, index=True),
    Column("boot_id", _NAME),
    Column("sequence", BigInteger, nullable=False, default=0),
    Column("failure", String(64)),
    Column("reply", Text),
    Column("late_reply", Text),
    Column("update_digest", _DIGEST),
)

SEQUENCES = Table(
    "sequences",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("boot_id", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

ADAPTATIONS = Table(
    "adaptations",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("bundle", _DIGEST, nullable=False),
    Column("strategy", _NAME, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("rounds", Integer, nullable=False),
    Column("rounds_done", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("started_s", Float(53), nullable=False),
    Column("ended_s", Float(53)),
    Column("reason", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("state", _DIGEST),
)

ROUNDS = Table(
    "rounds",
    METADATA,
    Column("adaptation", _ID, primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("started_s", Float(53), nullable=False),
    Column("ended_s", Float(53), nullable=False),
    Column("body", Text, nullable=False),
)

DECISIONS = Table(
    "decisions",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("time_s", Float(53), nullable=False),
    Column("kind", _NAME, nullable=False),
    Column("reason", _NAME, nullable=False),
    Column("detail", Text, nullable=False),
    Column("adaptation", _ID),
    Column("facts", Text, nullable=False),
    sqlite_autoincrement=True,
)

DROPS = Table(
    "drops",
    METADATA,
    Column("gateway", _ID, primary_key=True),
    Column("reason", _NAME, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

COHORTS = Table(
    "cohorts",
    METADATA,
    Column("serial", _SERIAL, primary_key=True, autoincrement=True),
    Column("bundle", _DIGEST, nullable=False),
    Column("id", _NAME, nullable=False),
    Column("began_s", Float(53), nullable=False),
    Column("adaptation", _ID),
    Column("round", Integer),
    Column("ended_s", Float(53)),
    Column("ended_adaptation", _ID),
    Column("ended_round", Integer),
    Column("ended_why", _NAME),
    Column("into", _NAME),
    UniqueConstraint("bundle", "id", name="uq_cohorts_id"),
    sqlite_autoincrement=True,
)

COHORT_MOVES = Table(
    "cohort_moves",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("time_s", Float(53), nullable=False),
    Column("bundle", _DIGEST, nullable=False),
    Column("adaptation", _ID),
    Column("round", Integer),
    Column("gateway", _ID, nullable=False, index=True),
    Column("source", _NAME),
    Column("target", _NAME),
    Column("reason", _NAME, nullable=False),
    Column("statistics", Text, nullable=False),
    sqlite_autoincrement=True,
)

COHORT_MERGES = Table(
    "cohort_merges",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("bundle", _DIGEST, nullable=False),
    Column("gone", _NAME, nullable=False),
    Column("kept", _NAME, nullable=False),
    Column("asked_by", _NAME, nullable=False),
    Column("asked_s", Float(53), nullable=False),
    Column("why", Text, nullable=False),
    Column("unlike", Boolean, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("ended_s", Float(53)),
    Column("outcome", Text),
    sqlite_autoincrement=True,
)
