"""The real broker for tests, and the account of tests that could not run."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from server_bridge.demo.broker import Mosquitto, find_mosquitto

__all__ = ["Mosquitto", "missing_part", "new_mosquitto"]


def new_mosquitto(directory: Path, *settings: str) -> Mosquitto:
    """A started mosquitto with its files in ``directory``."""
    broker = Mosquitto(directory / "broker", settings=settings)
    broker.start()
    return broker


def missing_part(marker: str) -> str | None:
    """Why tests with this marker cannot run here, or ``None``.

    Raises:
        pytest.UsageError: they cannot, and this is CI, where everything must run.
    """
    if marker == "mosquitto":
        why = None if find_mosquitto() is not None else "mosquitto is not installed"
    else:
        why = None if find_spec("torch") is not None else "torch is not installed"
    if why is not None and os.environ.get("CI"):
        raise pytest.UsageError(f"in CI every test must run: {why}")
    return why
