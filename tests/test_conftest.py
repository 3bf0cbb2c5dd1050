import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent

CONFTEST = """
from importlib.util import find_spec

import pytest
from tests import broker

broker.find_mosquitto = lambda: None
broker.find_spec = lambda name: None if name == "torch" else find_spec(name)

from tests.conftest import mosquitto, pytest_collection_modifyitems, pytest_terminal_summary
"""

TESTS = """
import pytest

def test_needs_nothing(): pass

def test_uses_the_fixture(mosquitto): raise AssertionError

@pytest.mark.mosquitto
def test_is_marked(): raise AssertionError

@pytest.mark.oracle
def test_compares(): raise AssertionError
"""


def _run(directory: Path, *, ci: bool) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_some.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PYTHONPATH": str(REPOSITORY)} | ({"CI": "true"} if ci else {})
    command = [sys.executable, "-m", "pytest", "-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(directory)]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_cannot_run_is_deselected_and_counted(tmp_path: Path) -> None:
    outcome = _run(tmp_path, ci=False)
    assert outcome.returncode == pytest.ExitCode.OK, outcome.stdout + outcome.stderr
    assert "1 passed, 3 deselected" in outcome.stdout
    assert "not run: 2 tests (mosquitto is not installed)" in outcome.stdout
    assert "not run: 1 tests (torch is not installed)" in outcome.stdout


def test_in_ci_what_cannot_run_is_a_failure(tmp_path: Path) -> None:
    outcome = _run(tmp_path, ci=True)
    assert outcome.returncode == pytest.ExitCode.USAGE_ERROR
    assert "in CI every test must run: mosquitto is not installed" in outcome.stderr + outcome.stdout
