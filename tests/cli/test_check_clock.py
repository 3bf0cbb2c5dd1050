"""``edge-agent check``: a clock that is off, against whatever tells the time."""

import json
import time
from pathlib import Path

import pytest

from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.cli.checked import Plant, check
from tests.e2e.gateway import FLEET, GATEWAY

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


@pytest.mark.parametrize(("behind_s", "says"), [(30 * YEAR_S, "a release was signed"), (-30 * YEAR_S, "ten years")])
def test_a_clock_off_against_the_signed_time(plant: Plant, behind_s: float, says: str) -> None:
    """The broker is reached nevertheless, as the agent reaches it."""
    found = check(plant.settings, clock_s=time.time() - behind_s)
    assert "clock" in found.failed
    assert says in found.saw["clock"]
    assert "timedatectl" in found.remedy["clock"]
    assert "broker" not in found.failed


def test_a_clock_off_against_the_time_that_the_agent_has_seen(settings: Path) -> None:
    data = settings.parent / "data"
    data.mkdir()
    seen_s = time.time() + 90 * DAY_S
    (data / "status.json").write_text(json.dumps({"clock": {"trusted": False, "floor_s": seen_s}}))
    assert check(settings).failed == ["clock", "broker"]
    assert check(settings, clock_s=seen_s + DAY_S).failed == ["broker"]


@pytest.mark.parametrize("days", [30, -3])
def test_a_clock_off_against_the_brokers_certificate(plant: Plant, days: int) -> None:
    """The certificates of this test are valid for a day; the last signed time says nothing against the clock."""
    bridge = plant.settings.parent.parent.parent / "old"
    bundle = next((plant.settings.parent / "bundle").parent.glob("bundle"))
    init_fleet(bridge, bundle, FLEET, now_s=time.time() - 9 * DAY_S)
    (old,) = provision_gateway(bridge, [GATEWAY], bridge / "gateways")
    (plant.settings.parent / "floors.json").write_bytes((old / "floors.json").read_bytes())
    found = check(plant.settings, clock_s=time.time() + days * DAY_S)
    assert found.failed == ["identity", "broker"]
    assert "the clock says" in found.saw["broker"]
    assert ("expired on" if days > 0 else "is valid from") in found.saw["broker"]
    assert "set this machine's clock" in found.remedy["broker"]
    assert "set the clock" in found.remedy["identity"]
