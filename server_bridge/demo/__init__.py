"""The demo: a drifting fleet that repairs itself, as real processes on one machine."""
