"""MQTT session, outbox, presence, blob transfer, durable files: what the bridge uses too."""
