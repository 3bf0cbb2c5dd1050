"""The real broker for tests, and the account of tests that could not run."""

import ctypes.util
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from server_bridge.demo.broker import Mosquitto, find_mosquitto
from server_bridge.demo.children import dies_with_us
from tests.shared_data import DATA

__all__ = ["CLOSED_PORT", "Mosquitto", "missing_part", "new_mosquitto"]

CLOSED_PORT = 1
"""Where nobody answers: a port that was free a moment ago may be another test's by now, this one is nobody's."""


def new_mosquitto(directory: Path, *settings: str) -> Mosquitto:
    """A started mosquitto with its files in ``directory``; it ends with the thread that starts it."""
    broker = Mosquitto(directory / "broker", settings=settings, prefix=dies_with_us())
    broker.start()
    return broker


def missing_part(marker: str) -> str | None:
    """Why tests with this marker cannot run here, or ``None``.

    Raises:
        pytest.UsageError: they cannot, and this is CI, where everything must run but systemd.
    """
    if marker == "mosquitto":
        why = None if find_mosquitto() is not None else "mosquitto is not installed"
    elif marker == "systemd":
        return None if _systemd_analyzes() else "systemd-analyze 252 or later, with libseccomp, is not installed"
    elif marker == "data":
        why = None if DATA.is_dir() else "data absent"
    elif marker == "reference":
        why = None if find_spec("clma") is not None else "fed-clma is not installed"
    else:
        absent = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
        why = f"{absent[0]} is not installed" if absent else None
    if why is not None and os.environ.get("CI"):
        raise pytest.UsageError(f"in CI every test must run: {why}")
    return why


def _systemd_analyzes() -> bool:
    """Whether units can be judged offline, and their filters be put on a process."""
    program = shutil.which("systemd-analyze")
    if program is None or ctypes.util.find_library("seccomp") is None:
        return False
    words = [program, "security", "--offline=yes", "--help"]
    return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0
