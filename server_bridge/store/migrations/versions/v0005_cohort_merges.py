"""What operators ask of cohorts: that one go into another."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "cohort_merges",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("gone", sa.String(length=128), nullable=False),
        sa.Column("kept", sa.String(length=128), nullable=False),
        sa.Column("asked_by", sa.String(length=128), nullable=False),
        sa.Column("asked_s", sa.Float(precision=53), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("unlike", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("ended_s", sa.Float(precision=53), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_cohort_merges_status"), "cohort_merges", ["status"], unique=False)
