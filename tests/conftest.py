"""Fixtures for the whole suite; tests whose parts are missing are deselected and counted."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.broker import Mosquitto, missing_part, new_mosquitto

PARTS = ("mosquitto", "oracle", "reference", "data", "systemd")
NOT_RUN = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run here."""
    config.stash[NOT_RUN] = Counter()
    for item in items:
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker("mosquitto")
    for name in PARTS:
        needing = [item for item in items if item.get_closest_marker(name)]
        why = missing_part(name) if needing else None
        if why is not None:
            config.stash[NOT_RUN][why] += len(needing)
            items[:] = [item for item in items if item not in needing]
            config.hook.pytest_deselected(items=needing)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its account to the process that tells it."""
    workeroutput = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:
        account: Counter[str] = session.config.stash.get(NOT_RUN, Counter())
        workeroutput["not_run"] = dict(account)


class WorkersAccounts:
    """Takes what the workers of pytest-xdist could not run: each collects all tests, so one account is all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """The account of a worker that has ended."""
        theirs: Counter[str] = Counter(getattr(node, "workeroutput", {}).get("not_run", {}))
        ours: Counter[str] = self._config.stash.get(NOT_RUN, Counter())
        self._config.stash[NOT_RUN] = ours | theirs


def pytest_configure(config: pytest.Config) -> None:
    """Listen to workers, where there are any; in CI every part must be there before anything runs."""
    _take_any_machines_time()
    config.pluginmanager.register(WorkersAccounts(config))
    if os.environ.get("CI"):
        for name in PARTS:
            missing_part(name)


def _take_any_machines_time() -> None:
    """How long an example takes is the machine's affair: hypothesis itself thinks so in CI alone."""
    hypothesis.settings.register_profile("any-machine", hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("any-machine")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The closing line names what was not run."""
    for why, count in sorted(config.stash.get(NOT_RUN, Counter[str]()).items()):
        terminalreporter.write_line(f"not run: {count} tests ({why})", yellow=True)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A fresh broker on a free port of 127.0.0.1."""
    broker = new_mosquitto(tmp_path)
    yield broker
    broker.kill()
