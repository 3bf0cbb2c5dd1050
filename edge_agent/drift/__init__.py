"""Drift monitors and their calibration: pure steps over numpy arrays."""
