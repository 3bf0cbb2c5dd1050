"""The hot path: samples to predictions, with weights swapped while it runs."""
