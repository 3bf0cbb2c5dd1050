"""Hundreds of kills, with a table of what came of them: ``python -m tests.soak``."""
