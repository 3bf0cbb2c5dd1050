import json
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.events import Connected, Received, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.runtime.report import Reading, Reporter
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import State
from edge_agent.wire.messages.state import ClockTrust, TrustedVersions
from tests.broker import CLOSED_PORT, Mosquitto
from tests.runtime.desk import GATEWAY, TOPICS, WAIT_S, bridge_session, wait

STATE = State(
    gateway=GATEWAY,
    boot_id="b1",
    agent_version="0.1.0",
    bundle="b" * 64,
    weights="a" * 64,
    weights_version=1,
    cohort="root",
    ota_state="idle",
    trusted=TrustedVersions(),
    clock=ClockTrust(trusted=True, floor_s=0.0),
    trainable_samples=0,
    training=False,
    served_samples=0,
    outbox_depth=0,
    peak_rss_bytes=1,
)


class Readings:
    """Counts how often it was read; may be broken."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None

    def __call__(self) -> Reading:
        self.count += 1
        if self.error is not None:
            raise self.error
        return Reading(STATE.model_copy(update={"served_samples": self.count}), {"flags": 0})


@pytest.fixture
def session() -> Iterator[MqttSession]:
    """A broker is away."""
    events: queue.Queue[SessionEvent] = queue.Queue(100)
    one = MqttSession(
        BrokerSettings("127.0.0.1", CLOSED_PORT), GATEWAY, clean_start=True, session_expiry_s=0, inbox=events
    )
    one.start()
    yield one
    one.stop(2.0)


def reporter(session: MqttSession, folder: Path, readings: Readings, *, interval_s: float = 3600.0) -> Reporter:
    return Reporter(session, TOPICS.state(GATEWAY), folder / "status.json", read=readings, interval_s=interval_s)


def test_it_reports_when_asked_at_its_interval_and_at_the_stop(session: MqttSession, tmp_path: Path) -> None:
    readings = Readings()
    one = reporter(session, tmp_path, readings)
    one.start()
    one.soon()
    wait(lambda: readings.count == 1, "the report that was asked for")
    one.set_interval(0.02)
    wait(lambda: readings.count >= 5, "reports at the interval")
    one.stop(WAIT_S)
    assert (one.alive, one.failure) == (False, None)
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["served_samples"], status["gateway"], status["flags"]) == (readings.count, GATEWAY, 0)


@pytest.mark.parametrize("place", ["absent folder", "reading"])
def test_a_disk_that_refuses_does_not_end_it(session: MqttSession, tmp_path: Path, place: str) -> None:
    readings = Readings()
    if place == "reading":
        readings.error = StorageError("no space left")
    one = reporter(session, tmp_path / "absent" if place == "absent folder" else tmp_path, readings, interval_s=0.02)
    one.start()
    wait(lambda: readings.count >= 3, "reports")
    assert one.alive
    readings.error = None
    (tmp_path / "absent").mkdir()
    one.stop(WAIT_S)
    assert len(list(tmp_path.rglob("status.json"))) == 1


def test_the_state_is_retained_by_the_broker(mosquitto: Mosquitto, tmp_path: Path) -> None:
    broker = BrokerSettings(mosquitto.host, mosquitto.port)
    events: queue.Queue[SessionEvent] = queue.Queue(100)
    gateway = MqttSession(broker, GATEWAY, clean_start=True, session_expiry_s=0, inbox=events)
    gateway.start()
    assert isinstance(events.get(timeout=WAIT_S), Connected)
    one = reporter(gateway, tmp_path, Readings())
    one.start()
    one.soon()
    events.get(timeout=WAIT_S)
    with bridge_session(broker, TOPICS.state(GATEWAY)) as (_, heard):
        message = heard.get(timeout=WAIT_S)
    assert isinstance(message, Received)
    assert message.retain
    assert decode(State, message.payload, cap_bytes=100_000).served_samples == 1
    one.stop(WAIT_S)
    gateway.stop(2.0)
