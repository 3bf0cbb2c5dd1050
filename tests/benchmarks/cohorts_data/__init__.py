"""Drifted clients whose families are known: synthetic changes, and real ones from our training graph."""
