"""Weighted means and the screening of updates. Pure."""
