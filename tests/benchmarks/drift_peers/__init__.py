"""Other libraries' detectors: each runs in an environment of its own, on stored streams."""
