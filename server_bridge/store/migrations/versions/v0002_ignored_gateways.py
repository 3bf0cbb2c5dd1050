"""Gateways that the bridge does not listen to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add since when a gateway is ignored, and why."""
    op.add_column("gateways", sa.Column("ignored_s", sa.Float(precision=53), nullable=True))
    op.add_column("gateways", sa.Column("ignored_why", sa.Text(), nullable=True))
