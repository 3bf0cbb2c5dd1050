"""Samples and their late labels: the join, the replay store, the holdout counts."""
