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
# Waits are uniform over 4 s: a quarter of them fall into any second, give or take four standard deviations (25).
MOST_IN_A_SECOND = CLIENTS // 4 + 25


def test_two_hundred_clients_spread_their_return(mosquitto: Mosquitto) -> None:
    inboxes: list[queue.Queue[SessionEvent]] = [queue.Queue(100) for _ in range(CLIENTS)]
    sessions = [_session(mosquitto.port, number, inbox) for number, inbox in enumerate(inboxes)]
    try:
        for session in sessions:
            session.start()
        _connections(sessions, 1)
        mosquitto.restart()
        times_s = _connections(sessions, 2)
        waits_s = [_first_wait_s(session_inbox) for session_inbox in inboxes]
        assert _busiest_second(waits_s) <= MOST_IN_A_SECOND, sorted(waits_s)
        # What a loaded machine makes of the waits is blurred; it is no herd all the same.
        assert _busiest_second(times_s) < 3 * CLIENTS // 4, sorted(times_s)
    finally:
        for session in sessions:
            session.stop(0.0)


def _session(port: int, number: int, inbox: "queue.Queue[SessionEvent]") -> MqttSession:
    settings = BrokerSettings("127.0.0.1", port)
    return MqttSession(settings, f"gw{number}", clean_start=True, session_expiry_s=0, inbox=inbox)


def _first_wait_s(inbox: "queue.Queue[SessionEvent]") -> float:
    """How long a session chose to wait when it had lost its broker."""
    connected = False
    while not (isinstance(event := inbox.get(timeout=5.0), Disconnected) and connected):
        connected = connected or isinstance(event, Connected)
    return event.retry_in_s


def _busiest_second(moments_s: Sequence[float]) -> int:
    return max(sum(start <= moment < start + 1.0 for moment in moments_s) for start in moments_s)


def _connections(sessions: Sequence[MqttSession], at_least: int) -> list[float]:
    """When each was seen connected for the ``at_least``-th time or later."""
    seen: dict[str, float] = {}
    until_s = time.monotonic() + 60.0
    while len(seen) < len(sessions) and time.monotonic() < until_s:
        for session in sessions:
            if session.connected and session.connection >= at_least:
                seen.setdefault(session.client_id, time.monotonic())
        time.sleep(0.02)
    assert len(seen) == len(sessions)
    return list(seen.values())
