"""Cohorts, and every move of a gateway between them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "cohorts",
        sa.Column("serial", serial, autoincrement=True, nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("began_s", sa.Float(precision=53), nullable=False),
        sa.Column("adaptation", sa.String(length=64), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("ended_s", sa.Float(precision=53), nullable=True),
        sa.Column("ended_adaptation", sa.String(length=64), nullable=True),
        sa.Column("ended_round", sa.Integer(), nullable=True),
        sa.Column("ended_why", sa.String(length=128), nullable=True),
        sa.Column("into", sa.String(length=128), nullable=True),
        sa.PrimaryKeyConstraint("serial"),
        sa.UniqueConstraint("bundle", "id", name="uq_cohorts_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cohort_moves",
        sa.Column("id", serial, autoincrement=True, nullable=False),
        sa.Column("time_s", sa.Float(precision=53), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("adaptation", sa.String(length=64), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("gateway", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=128), nullable=True),
        sa.Column("target", sa.String(length=128), nullable=True),
        sa.Column("reason", sa.String(length=128), nullable=False),
        sa.Column("statistics", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_cohort_moves_gateway"), "cohort_moves", ["gateway"], unique=False)
