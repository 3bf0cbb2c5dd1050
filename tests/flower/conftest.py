"""Flower's messages need a process with an identity, whichever test comes first in it."""

import pytest

from server_bridge.flower.records import prepare_process


@pytest.fixture(autouse=True)
def _prepared() -> None:
    prepare_process()
