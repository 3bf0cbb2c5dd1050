"""What the bridge remembers: tables, migrations, blobs. SQLite by default, PostgreSQL by URL."""
