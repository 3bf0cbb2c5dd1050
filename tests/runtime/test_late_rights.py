"""A gateway that is at work before the broker's access list knows it."""

import json
import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.link.events import Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import Presence
from edge_agent.wire.topics import FleetTopics
from server_bridge.pki.acl import access_list
from tests.access_list import Listed
from tests.e2e.gateway import FLEET, GATEWAY, RunningAgent, provisioned, run

WAIT_S = 120.0
TOPICS = FleetTopics(FLEET)


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Listed]:
    one = Listed(provisioned(tmp_path / "fleet"), tmp_path)
    yield one
    one.broker.kill()


def eventually(holds: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.mosquitto
def test_once_it_is_known_it_says_that_it_is_there_and_hears_what_was_withheld(listed: Listed) -> None:
    anybody = "topic readwrite #\n"
    listed.admit(anybody)
    inbox: queue.Queue[SessionEvent] = queue.Queue(10_000)
    witness = MqttSession(
        BrokerSettings("127.0.0.1", listed.broker.port),
        "witness",
        clean_start=True,
        session_expiry_s=0,
        inbox=inbox,
        subscriptions=[Subscription(TOPICS.presence(GATEWAY))],
    )
    witness.start()
    try:
        witness.publish(TOPICS.release, b"no release", retain=True, timeout_s=5.0)
        with RunningAgent(listed.settings) as agent:
            eventually(lambda: "agent runs here, and the broker refuses what it sends" in _check(agent), "refused")
            assert not _heard(inbox)
            assert not _status(agent)["last_refusal"]
            listed.admit(anybody + access_list(FLEET, [GATEWAY]))
            eventually(lambda: not _status(agent)["broker_refusal"], "admitted")
            eventually(
                lambda: any(decode(Presence, one, cap_bytes=10_000).online for one in _heard(inbox)),
                "it is not said to be there",
            )
            eventually(lambda: bool(_status(agent)["last_refusal"]), "the release was withheld")
            assert "the broker refuses nothing that it sends" in _check(agent)
    finally:
        witness.stop(2.0)


def _heard(inbox: "queue.Queue[SessionEvent]") -> list[bytes]:
    return [event.payload for event in list(inbox.queue) if isinstance(event, Received)]


def _check(agent: RunningAgent) -> str:
    return run("check", "-c", str(agent.settings)).out


def _status(agent: RunningAgent) -> dict[str, str]:
    path = agent.settings.parent / "data" / "status.json"
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {"broker_refusal": "?"}
    return found
