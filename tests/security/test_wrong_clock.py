"""A running agent, the production broker, and a certificate that the agent's clock does not like."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from server_bridge.pki.authority import Authority
from server_bridge.pki.certificates import issue, utc_now
from tests.e2e.gateway import FLEET, RunningAgent, gateway_folder, provisioned
from tests.e2e.test_storage_faults import lines
from tests.security.broker import ProductionMosquitto

pytestmark = [pytest.mark.mosquitto, pytest.mark.long]

Settle = Callable[[int, float], Path]
DAY_S = 86_400.0
SERVED = "served.jsonl"


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Settle]:
    """Takes the age of the broker's one-day certificate in days and the gateway's floor, from now; gives agent.toml."""
    brokers: list[ProductionMosquitto] = []

    def settle(days_ago: int, floor_from_now_s: float) -> Path:
        bridge = provisioned(tmp_path)
        authority = Authority.create(bridge, FLEET)
        folder = authority.broker(["127.0.0.1"])
        pair = issue(authority._pair, "broker", hosts=["127.0.0.1"], days=1, now=utc_now() - timedelta(days=days_ago))
        (folder / "broker.crt").write_bytes(pair.certificate_pem)
        (folder / "broker.key").write_bytes(pair.key_pem)
        broker = ProductionMosquitto(tmp_path / "broker", folder)
        sink: dict[str, str | int | float | bool] = {"kind": "jsonl", "path": SERVED}
        settings = gateway_folder(bridge, tmp_path / "gateways", broker.port, sink=sink)
        floors = json.loads(settings.with_name("floors.json").read_text())
        floors["created_s"] = float(int(time.time() + floor_from_now_s))
        settings.with_name("floors.json").write_text(json.dumps(floors))
        brokers.append(broker)
        broker.start()
        return settings

    yield settle
    for broker in brokers:
        broker.kill()


@pytest.mark.parametrize(("days_ago", "floor_s"), [(-10, DAY_S), (10, -12 * 365 * DAY_S)])
def test_a_wrong_clock_is_reported_and_cuts_nobody_off(plant: Settle, days_ago: int, floor_s: float) -> None:
    with RunningAgent(plant(days_ago, floor_s)) as agent:
        agent.wait("the connection", lambda: agent.logged("connected"))
        assert agent.logged("broker-certificate-dates-tolerated")
        _wait_for_service(agent)


@pytest.mark.parametrize("days_ago", [-10, 10])
def test_a_right_clock_refuses_and_serving_goes_on(plant: Settle, days_ago: int) -> None:
    with RunningAgent(plant(days_ago, -DAY_S)) as agent:
        agent.wait("the refusal", lambda: "BadDates" in agent.log.read_text(errors="replace"))
        _wait_for_service(agent)
        assert not agent.logged("connected")


def _wait_for_service(agent: RunningAgent) -> None:
    served = agent.settings.with_name(SERVED)
    before = lines(served)
    agent.wait("serving", lambda: lines(served) > before + 50)
