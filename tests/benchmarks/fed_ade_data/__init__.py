"""Streams that shift without labels, and what adapts to them."""
