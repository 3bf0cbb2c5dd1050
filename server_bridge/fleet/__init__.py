"""The gateways as the bridge sees them: registry, presence, ingest, commands, uploads."""
