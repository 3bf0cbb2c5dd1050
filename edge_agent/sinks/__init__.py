"""Where predictions go: a file a protocol."""
