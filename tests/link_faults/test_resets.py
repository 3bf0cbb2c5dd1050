"""Links that reset their connections, and brokers that are killed, are no second client with our id."""

import queue
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edge_agent.link.events import Connected, Disconnected, Published, SessionEvent
from edge_agent.link.network import EVICTIONS_TELL, LOST_COUNTS_AS
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings
from tests.broker import Mosquitto
from tests.link_faults.proxy import LinkFault, LinkProxy

WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class SteadyWait(Backoff):
    """Longer than a killed broker is away: no attempt is refused."""

    def delay_s(self, failures: int, rng: random.Random) -> float:
        return WAIT_S


@contextmanager
def gateway(port: int, backoff: Backoff) -> Iterator[tuple[MqttSession, "queue.Queue[SessionEvent]"]]:
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    session = MqttSession(
        BrokerSettings("127.0.0.1", port), "gw1", clean_start=True, session_expiry_s=0, inbox=inbox, backoff=backoff
    )
    session.start()
    try:
        yield session, inbox
    finally:
        session.stop(1.0)


def lost(inbox: "queue.Queue[SessionEvent]") -> Disconnected:
    event = inbox.get(timeout=60.0)
    assert isinstance(event, Disconnected)
    return event


def test_resets_in_a_row_are_not_taken_for_a_double(mosquitto: Mosquitto) -> None:
    with (
        LinkProxy(mosquitto.port, LinkFault()) as link,
        gateway(link.port, Backoff(first_s=0.05, cap_s=0.2)) as (_, inbox),
    ):
        for _ in range(EVICTIONS_TELL + 2):
            assert isinstance(inbox.get(timeout=60.0), Connected)
            link.cut()
            assert not lost(inbox).taken_over


def test_connections_that_carry_something_do_not_make_the_waits_grow(mosquitto: Mosquitto) -> None:
    """Chance: were they to grow, all eight would be this short once in 100,000 runs."""
    backoff = Backoff(first_s=0.02, cap_s=4.0)
    with LinkProxy(mosquitto.port, LinkFault()) as link, gateway(link.port, backoff) as (session, inbox):
        for number in range(8):
            assert isinstance(inbox.get(timeout=60.0), Connected)
            session.publish("t", b"%d" % number)
            assert isinstance(inbox.get(timeout=60.0), Published)
            link.cut()
            assert lost(inbox).retry_in_s <= backoff.first_s * 2 ** (LOST_COUNTS_AS - 1)


def test_a_broker_killed_again_and_again_is_not_taken_for_a_double(mosquitto: Mosquitto) -> None:
    with gateway(mosquitto.port, SteadyWait()) as (_, inbox):
        for _ in range(EVICTIONS_TELL + 1):
            while not isinstance(inbox.get(timeout=60.0), Connected):
                continue
            mosquitto.kill()
            assert not lost(inbox).taken_over
            mosquitto.start()
