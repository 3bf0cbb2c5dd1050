import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link import outbox
from edge_agent.link.database import open_database
from edge_agent.link.events import Connected, Published, Received, SessionEvent, Subscription
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.link.outbox_pump import OutboxPump
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import EVENT_CAP_BYTES, ErrorEvent, Event
from server_bridge.demo.broker import Mosquitto

QUICK = Backoff(first_s=0.05, cap_s=0.2)
TOPIC = "clma/1/f/up/gw1/event"
WAIT_S = 60.0


class Gateway:
    """Outbox, session and pump of one gateway, and the bridge's subscription, in one process."""

    def __init__(self, folder: Path, port: int) -> None:
        settings = BrokerSettings("127.0.0.1", port)
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
        self.bridge_inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
        self.database = open_database(folder / "agent.db")
        self.outbox = Outbox(self.database, "gw1", max_bytes=10**6, max_age_s=10**6)
        self.session = self._session(settings, "gw1", self.inbox)
        self.bridge = self._session(settings, "bridge", self.bridge_inbox, Subscription(TOPIC))
        self.pump = OutboxPump(self.outbox, self.session, TOPIC)
        self.pump.start()

    @staticmethod
    def _session(
        settings: BrokerSettings, client_id: str, inbox: "queue.Queue[SessionEvent]", *subscriptions: Subscription
    ) -> MqttSession:
        return MqttSession(
            settings,
            client_id,
            clean_start=False,
            session_expiry_s=600,
            inbox=inbox,
            subscriptions=subscriptions,
            backoff=QUICK,
        )

    def put(self, place: str) -> None:
        self.outbox.put(ErrorEvent(place=place, problem=""), Priority.LIFECYCLE)

    def bridge_hears(self, place: str, timeout_s: float = WAIT_S) -> Event:
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            try:
                event = self.bridge_inbox.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(event, Received):
                message = decode(Event, event.payload, cap_bytes=EVENT_CAP_BYTES)
                if isinstance(message.body, ErrorEvent) and message.body.place == place:
                    return message
        raise AssertionError(f"{place} not heard")

    def wait(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < until_s
            time.sleep(0.01)

    def close(self) -> None:
        self.pump.stop(5)
        self.session.stop(2)
        self.bridge.stop(2)
        assert self.pump.failure is None
        self.database.close()


@pytest.fixture
def gateway(tmp_path: Path, mosquitto: Mosquitto) -> Iterator[Gateway]:
    made = Gateway(tmp_path, mosquitto.port)
    yield made
    made.close()


def _connect(gateway: Gateway) -> None:
    gateway.bridge.start()
    gateway.wait(lambda: gateway.bridge.connected)
    gateway.session.start()
    gateway.wait(lambda: gateway.session.connected)


def test_events_put_before_the_first_connection_arrive_after_it(gateway: Gateway) -> None:
    gateway.put("early")
    _connect(gateway)
    message = gateway.bridge_hears("early")
    gateway.outbox.acknowledge(message.epoch, [(message.sequence, message.sequence)])
    assert gateway.outbox.depth == 0


def test_a_broker_killed_before_it_forwarded_loses_nothing(gateway: Gateway, mosquitto: Mosquitto) -> None:
    _connect(gateway)
    gateway.bridge.stop(2)
    gateway.put("while the bridge is away")
    gateway.wait(lambda: any(isinstance(event, Published) for event in list(gateway.inbox.queue)))
    mosquitto.kill()
    mosquitto.start()
    gateway.bridge = gateway._session(
        BrokerSettings("127.0.0.1", mosquitto.port), "bridge", gateway.bridge_inbox, Subscription(TOPIC)
    )
    gateway.bridge.start()
    gateway.wait(lambda: gateway.session.connected and gateway.bridge.connected)
    gateway.pump.on_connected()
    gateway.bridge_hears("while the bridge is away")


def test_a_new_start_of_the_bridge_brings_everything_again(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "RESEND_FIRST_S", 10 * WAIT_S)  # nothing comes again by itself meanwhile
    _connect(gateway)
    gateway.put("twice")
    gateway.bridge_hears("twice")
    gateway.pump.on_bridge("boot-2")
    gateway.bridge_hears("twice")


def test_nothing_is_sent_while_the_bridge_is_known_to_be_away(gateway: Gateway) -> None:
    gateway.pump.on_bridge("boot-1", online=False)
    _connect(gateway)
    gateway.put("held")
    with pytest.raises(AssertionError, match="not heard"):
        gateway.bridge_hears("held", timeout_s=1.2)
    gateway.pump.on_bridge("boot-1", online=True)
    gateway.bridge_hears("held")


def test_a_database_that_refuses_for_a_while_does_not_end_the_pump(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(now_s: float, limit: int) -> list[tuple[int, bytes]]:
        raise StorageError("agent.db: disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.outbox, "due", refuse)
        _connect(gateway)
        gateway.put("later")
        time.sleep(0.3)
        assert gateway.pump.alive
    gateway.bridge_hears("later")
    assert any(isinstance(event, Connected) for event in gateway.inbox.queue)
