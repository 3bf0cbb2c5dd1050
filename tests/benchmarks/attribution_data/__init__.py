"""Injected sensor drifts on recorded features."""
