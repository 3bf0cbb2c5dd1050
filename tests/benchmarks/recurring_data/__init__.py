"""Recurring drift: FedDrift's patterns, data sets, clients, and the ways to find cohorts."""
