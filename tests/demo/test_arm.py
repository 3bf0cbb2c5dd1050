import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from edge_agent.errors import TransientError
from server_bridge.demo.arm import BRIDGE, Arm
from server_bridge.demo.base import Groundwork
from server_bridge.demo.broker import IotCore
from server_bridge.demo.children import Children
from server_bridge.demo.fleet_folder import make_fleet
from server_bridge.demo.live import PlainProgress
from server_bridge.demo.timing import Limits
from tests.demo.test_children import wait_until_up

PYTHON = Path(sys.executable).name
PORT = 40_405


@pytest.fixture
def arm(tmp_path: Path, groundwork: Groundwork) -> Iterator[Arm]:
    """An arm whose fleet is on disk and whose processes are not started."""
    broker = IotCore(tmp_path / "broker", port=PORT)
    folder = make_fleet(tmp_path / "arm", "demo", "clma", groundwork, broker, seed=0)
    with Children(tmp_path / "logs") as children:
        made = Arm(
            "CLMA",
            "clma",
            folder,
            groundwork,
            broker,
            children,
            PlainProgress(Console(file=io.StringIO())),
            Limits.for_fleet(3, 15.0),
        )
        yield made
        made.close()


def test_a_phase_ends_as_soon_as_nothing_is_missing(arm: Arm) -> None:
    look = arm.phase("start", "nothing to wait for", 0.0, lambda look: [])
    assert not look.online


def test_a_stuck_phase_names_itself_who_is_missing_and_shows_their_log(arm: Arm) -> None:
    child = arm.children.start(
        "gw-02", PYTHON, ["-c", "import time; print('up: waiting for a broker', flush=True); time.sleep(600)"]
    )
    wait_until_up(child.log)
    with pytest.raises(TransientError) as error:
        arm.phase("clean", "clean data", 1.0, lambda look: ["gw-02"])
    assert "CLMA, clean data: after 1 s still waiting for gw-02" in error.value.problem
    assert "end of gw-02.log\nup: waiting for a broker" in error.value.problem
    assert str(arm.children.logs) in error.value.hint


def test_a_process_that_ends_stops_the_arm_at_once(arm: Arm) -> None:
    child = arm.children.start(BRIDGE, PYTHON, ["-c", "import sys; print('out of luck'); sys.exit(5)"])
    child.process.wait(60)
    with pytest.raises(TransientError, match=r"(?s)bridge ended with status 5.*out of luck"):
        arm.phase("rounds", "rounds", 60.0, lambda look: ["round 1 of 12"])


def test_limits_grow_with_the_fleet() -> None:
    assert Limits.for_fleet(40, 15.0).rounds == 4 * Limits.for_fleet(10, 15.0).rounds
    assert Limits.for_fleet(3, 15.0) == Limits.for_fleet(10, 15.0)
