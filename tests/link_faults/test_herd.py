"""A broker restart must not bring a fleet back as a herd."""

import queue
import time
from collections.abc import Sequence

from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from tests.broker import Mosquitto

CLIENTS = 200
# Waits are uniform over 4 s: a quarter of them fall into any second, give or take four standard deviations (25).
MOST_IN_A_SECOND = CLIENTS // 4 + 25


def test_two_hundred_clients_spread_their_return(mosquitto: Mosquitto) -> None:
    sessions = [_session(mosquitto.port, number) for number in range(CLIENTS)]
    try:
        for session in sessions:
            session.start()
        _connections(sessions, 1)
        mosquitto.restart()
        times_s = sorted(_connections(sessions, 2))
        busiest = max(sum(start <= at < start + 1.0 for at in times_s) for start in times_s)
        assert busiest <= MOST_IN_A_SECOND, (
            f"{busiest} of {CLIENTS} in one second, over {times_s[-1] - times_s[0]:.1f} s"
        )
    finally:
        for session in sessions:
            session.stop(0.0)


def _session(port: int, number: int) -> MqttSession:
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    settings = BrokerSettings("127.0.0.1", port)
    return MqttSession(settings, f"gw{number}", clean_start=True, session_expiry_s=0, inbox=inbox)


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
