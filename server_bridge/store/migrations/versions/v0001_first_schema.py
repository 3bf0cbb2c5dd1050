"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "adaptations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("strategy", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("rounds_done", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started_s", sa.Float(precision=53), nullable=False),
        sa.Column("ended_s", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_adaptations_status"), "adaptations", ["status"], unique=False)
    op.create_table(
        "commands",
        sa.Column("command_id", sa.String(length=128), nullable=False),
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("duration_s", sa.Float(precision=53), nullable=False),
        sa.Column("issued_s", sa.Float(precision=53), nullable=False),
        sa.Column("ended_s", sa.Float(precision=53), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("boot_id", sa.String(length=128), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("failure", sa.String(length=64), nullable=True),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("late_reply", sa.Text(), nullable=True),
        sa.Column("update_digest", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("command_id"),
    )
    op.create_index(op.f("ix_commands_gateway"), "commands", ["gateway"], unique=False)
    op.create_index(op.f("ix_commands_status"), "commands", ["status"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "counts",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("weights", sa.String(length=64), nullable=False),
        sa.Column("bucket_s", sa.Float(precision=53), nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=False),
        sa.Column("weights_version", sa.BigInteger(), nullable=False),
        sa.Column("cohort", sa.String(length=128), nullable=False),
        sa.Column("labelled", sa.BigInteger(), nullable=False),
        sa.Column("right", sa.BigInteger(), nullable=False),
        sa.Column("loss_sum", sa.Float(precision=53), nullable=False),
        sa.Column("epoch", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("gateway", "weights", "bucket_s", "bucket"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("time_s", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.String(length=128), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("adaptation", sa.String(length=64), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "drops",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=128), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("gateway", "reason"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_s", sa.Float(precision=53), nullable=False),
        sa.Column("time_s", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("gateway", "epoch", "sequence", name="uq_events_identity"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_kind", "events", ["kind", "id"], unique=False)
    op.create_table(
        "flags",
        sa.Column("flag_id", sa.String(length=64), nullable=False),
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("received_s", sa.Float(precision=53), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("weights", sa.String(length=64), nullable=False),
        sa.Column("weights_version", sa.BigInteger(), nullable=False),
        sa.Column("cohort", sa.String(length=128), nullable=False),
        sa.Column("trainable_samples", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("adaptation", sa.String(length=64), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("flag_id"),
    )
    op.create_index(op.f("ix_flags_gateway"), "flags", ["gateway"], unique=False)
    op.create_index(op.f("ix_flags_status"), "flags", ["status"], unique=False)
    op.create_table(
        "gateways",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("registered_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("node_id"),
    )
    op.create_table(
        "outbox_marks",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.String(length=128), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.Column("above", sa.Text(), nullable=False),
        sa.Column("seen_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("gateway", "epoch"),
    )
    op.create_table(
        "presence",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("online", sa.Boolean(), nullable=False),
        sa.Column("boot_id", sa.String(length=128), nullable=False),
        sa.Column("connection", sa.BigInteger(), nullable=False),
        sa.Column("changed_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("gateway"),
    )
    op.create_table(
        "rounds",
        sa.Column("adaptation", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_s", sa.Float(precision=53), nullable=False),
        sa.Column("ended_s", sa.Float(precision=53), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("adaptation", "round", "attempt"),
    )
    op.create_table(
        "sequences",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("boot_id", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("gateway"),
    )
    op.create_table(
        "states",
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("received_s", sa.Float(precision=53), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("gateway"),
    )
