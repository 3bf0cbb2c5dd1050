"""Gaps that a restored store has in what it had acknowledged are told once for each gateway."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add, to each outbox mark, how often the store had gone back when it was last set."""
    op.add_column("outbox_marks", sa.Column("setbacks", sa.BigInteger(), nullable=False, server_default="0"))
