"""Schema migrations (alembic), run at open."""
