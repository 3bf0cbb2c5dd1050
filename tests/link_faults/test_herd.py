"""A broker restart must not bring a fleet back as a herd."""

import queue
import time
from collections.abc import Sequence

import pytest

from edge_agent.link.events import Connected, Disconnected, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from tests.broker import Mosquitto

pytestmark = pytest.mark.long

CLIENTS = 200
# Waits are uniform over 4 s: a quarter of them fall into any second. The fullest second holds more than this once in
# 100,000 returns (200,000 simulated); spread over 2 s it would hold a hundred.
MOST_IN_A_SECOND = 82


def test_two_hundred_clients_spread_their_return(mosquitto: Mosquitto) -> None:
    inboxes: list[queue.Queue[SessionEvent]] = [queue.Queue(100) for _ in range(CLIENTS)]
    sessions = [_session(mosquitto.port, number, inbox) for number, inbox in enumerate(inboxes)]
    try:
        for session in sessions:
            session.start()
        _connected_after(sessions, [0] * CLIENTS)
        first = [session.connection for session in sessions]
        restarted_s = time.monotonic()
        mosquitto.restart()
        returned_s = [at_s - restarted_s for at_s in _connected_after(sessions, first)]
        waits_s = [_first_wait_s(session_inbox) for session_inbox in inboxes]
        assert _busiest_second(waits_s) <= MOST_IN_A_SECOND, sorted(waits_s)
        # A loaded machine makes a return later than was chosen, never earlier.
        assert all(at_s >= wait_s for at_s, wait_s in zip(returned_s, waits_s, strict=True))
    finally:
        for session in sessions:
            session.stop(0.0)


def _session(port: int, number: int, inbox: "queue.Queue[SessionEvent]") -> MqttSession:
    settings = BrokerSettings("127.0.0.1", port)
    return MqttSession(settings, f"gw{number}", clean_start=True, session_expiry_s=0, inbox=inbox)


def _first_wait_s(inbox: "queue.Queue[SessionEvent]") -> float:
    """How long a session chose to wait when it had lost its broker."""
    connected = False
    while not (isinstance(event := inbox.get(timeout=30.0), Disconnected) and connected):
        connected = connected or isinstance(event, Connected)
    return event.retry_in_s


def _busiest_second(moments_s: Sequence[float]) -> int:
    return max(sum(start <= moment < start + 1.0 for moment in moments_s) for start in moments_s)


def _connected_after(sessions: Sequence[MqttSession], attempts: Sequence[int]) -> list[float]:
    """When each was seen connected by a later attempt than this, in their order."""
    seen: dict[str, float] = {}
    until_s = time.monotonic() + 120.0
    while len(seen) < len(sessions) and time.monotonic() < until_s:
        for session, attempt in zip(sessions, attempts, strict=True):
            if session.connected and session.connection > attempt:
                seen.setdefault(session.client_id, time.monotonic())
        time.sleep(0.02)
    assert len(seen) == len(sessions)
    return [seen[session.client_id] for session in sessions]
