"""The MQTT fleet over a real broker: the transport contract, and Flower's own strategies on it."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.messages import ErrorEvent, Event
from edge_agent.wire.tensors import Weights
from edge_agent.wire.topics import FleetTopics
from server_bridge.fleet.registry import register
from server_bridge.fleet.station import FleetStation
from server_bridge.fleet.transport import FleetTransport
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from server_bridge.store.store import Store, store_url
from tests.broker import CLOSED_PORT, Mosquitto
from tests.fleet.desk import MemoryBlobs
from tests.fleet.scripted import ScriptedGateway
from tests.flower.memory_fleet import direction, initial_weights, settings, towards
from tests.flower.transport_contract import TransportContract

FLEET = "line1"
WAIT_S = 60.0
STOP_S = 6.0


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come in time"
        time.sleep(0.02)


def new_station(broker: BrokerSettings, store: Store, blobs: MemoryBlobs) -> FleetStation:
    return FleetStation(
        broker, FleetTopics(FLEET), store, lambda body: ("key", b"signature"), lambda bundle, graph: 100_000, blobs
    )


class Line:
    """A bridge's station and three scripted gateways; ``g4`` is registered and never comes."""

    def __init__(self, path: Path, broker: BrokerSettings) -> None:
        self.broker = broker
        self.blobs = MemoryBlobs()
        self.store = Store(store_url(path), path / "blobs")
        for gateway in ("g1", "g2", "g3", "g4"):
            register(self.store.gateways, gateway, 0.0)
        self.station = self.new_station()
        self.gateways = {
            name: ScriptedGateway(broker, FLEET, name, self.blobs.published, towards(direction(1), 0.01, number))
            for number, name in enumerate(("g1", "g2", "g3"))
        }

    transport: FleetTransport
    timeout_s = 6.0

    def new_station(self) -> FleetStation:
        station = new_station(self.broker, self.store, self.blobs)
        self.transport = station.fleet
        return station

    def start(self) -> None:
        self.station.start()
        for gateway in self.gateways.values():
            gateway.start()
        until(lambda: sum(gateway.online for gateway in self.transport.gateways()) == 3)

    def stop(self) -> None:
        for gateway in self.gateways.values():
            gateway.stop()
        began_s = time.monotonic()
        self.station.stop(STOP_S)
        assert time.monotonic() - began_s < 3 * STOP_S
        assert all(loop.failure is None for loop in self.station.loops)
        self.store.close()

    def mute(self, gateway: str) -> None:
        self.gateways[gateway].muted.set()

    def unmute(self, gateway: str) -> None:
        self.gateways[gateway].muted.clear()

    def times_trained(self, gateway: str) -> int:
        return len(self.gateways[gateway].trained)


@pytest.fixture
def line(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path, BrokerSettings(mosquitto.host, mosquitto.port))
    made.start()
    yield made
    made.stop()


class TestMqttTransport(TransportContract):
    @pytest.fixture
    def fleet(self, line: Line) -> Line:
        return line


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_flowers_own_strategies_run_two_rounds_over_mqtt(line: Line, name: StrategyName) -> None:
    strategy = make_strategy(StrategySettings(name=name))
    grid = MqttGrid(line.transport, settings())
    arrays: Weights = initial_weights()
    for number in (1, 2):
        outcome = run_round(strategy, grid, arrays, number, {}, WAIT_S)
        assert outcome.ok == ("g1", "g2", "g3")
        assert outcome.failed == {}
        arrays = outcome.arrays
    moved = arrays["w"] - initial_weights()["w"]
    expected = direction(1)["w"]
    assert float(np.sum(moved * expected)) > 0
    if name == "fedavg":
        np.testing.assert_allclose(moved, 2 * expected, atol=0.05)


def test_events_are_acknowledged_after_they_are_stored(line: Line) -> None:
    gateway = line.gateways["g1"]
    for sequence in range(300):
        body = ErrorEvent(place="test", problem=f"problem {sequence}")
        event = Event(gateway="g1", epoch="e1", sequence=sequence, low=0, time_s=0.0, body=body)
        gateway.publish(FleetTopics(FLEET).event("g1"), event)

    def acknowledged() -> int:
        return sum(last - first + 1 for ack in gateway.acks for first, last in ack.committed)

    until(lambda: acknowledged() == 300)
    assert len(line.store.events.recent(limit=1000)) == 300


def test_the_broker_restarts_in_mid_round_and_the_round_completes(line: Line, mosquitto: Mosquitto) -> None:
    for name in line.gateways:
        line.mute(name)
    grid = MqttGrid(line.transport, settings())
    strategy = make_strategy(StrategySettings(name="fedavg"))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_round, strategy, grid, initial_weights(), 1, {}, WAIT_S)
        time.sleep(0.5)
        mosquitto.restart()  # here: a broker ends with the thread that starts it
        for name in line.gateways:
            line.unmute(name)
        outcome = running.result(timeout=90.0)
    assert outcome.ok == ("g1", "g2", "g3")
    assert [line.times_trained(name) for name in line.gateways] == [1, 1, 1]


def test_a_new_bridge_asks_again_and_gets_the_stored_results(line: Line) -> None:
    grid = MqttGrid(line.transport, settings())
    first = run_round(make_strategy(StrategySettings(name="fedavg")), grid, initial_weights(), 1, {}, WAIT_S)
    line.station.stop(STOP_S)
    line.station = line.new_station()
    line.station.start()
    until(lambda: sum(gateway.online for gateway in line.transport.gateways()) == 3)
    grid = MqttGrid(line.transport, settings())
    again = run_round(make_strategy(StrategySettings(name="fedavg")), grid, initial_weights(), 1, {}, WAIT_S)
    assert np.array_equal(first.arrays["w"], again.arrays["w"])
    assert [line.times_trained(name) for name in line.gateways] == [1, 1, 1]


@pytest.mark.parametrize("answers", [True, False])
def test_it_ends_in_time_though_the_broker_was_never_there(tmp_path: Path, answers: bool) -> None:
    """Refused at once, or no answer at all: then a connection is still tried while the store is closed."""
    with ExitStack() as sockets:
        port = CLOSED_PORT if answers else _silent_port(sockets)
        store = Store(store_url(tmp_path), tmp_path / "blobs")
        station = new_station(BrokerSettings("127.0.0.1", port), store, MemoryBlobs())
        station.start()
        time.sleep(0.2)
        began_s = time.monotonic()
        assert station.stop(STOP_S)
        assert time.monotonic() - began_s < 3 * STOP_S
        store.close()
        until(lambda: not station.session.alive)


def _silent_port(sockets: ExitStack) -> int:
    """Where nobody accepts and the queue is full: an attempt to connect hangs."""
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    port: int = listener.getsockname()[1]
    for _ in range(2):
        waiting = sockets.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(("127.0.0.1", port))
    return port
