"""Other libraries' estimates: each runs in an environment of its own, on stored windows."""
