"""Fixtures for the whole suite; tests whose parts are missing are deselected and counted."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import Mosquitto, missing_part, new_mosquitto

NOT_RUN = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run here; in CI that is an error."""
    config.stash[NOT_RUN] = Counter()
    for item in items:
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker("mosquitto")
    for name in ("mosquitto", "oracle", "reference", "systemd"):
        needing = [item for item in items if item.get_closest_marker(name)]
        why = missing_part(name) if needing else None
        if why is not None:
            config.stash[NOT_RUN][why] += len(needing)
            items[:] = [item for item in items if item not in needing]
            config.hook.pytest_deselected(items=needing)


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
