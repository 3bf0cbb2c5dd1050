import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError, TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import BlobUnavailable, Downloader
from edge_agent.link.events import Connected, Received, SessionEvent, Subscription, Will
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings
from edge_agent.wire.blobs import make_reference
from server_bridge.demo import broker as module
from server_bridge.demo.broker import BrokerProcess, IotCore, Mosquitto, find_mosquitto, free_port, make_broker
from tests.link.peers import TOPICS, Publisher

KINDS = [pytest.param(Mosquitto, marks=pytest.mark.mosquitto), IotCore]


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    made: BrokerProcess = request.param(tmp_path / "broker")
    made.start()
    yield made
    made.kill()


def _session(broker: BrokerProcess, client_id: str, *filters: str, will: Will | None = None) -> MqttSession:
    session = MqttSession(
        BrokerSettings(broker.host, broker.port),
        client_id,
        clean_start=False,
        session_expiry_s=600,
        inbox=queue.Queue(1000),
        subscriptions=[Subscription(one) for one in filters],
        will=None if will is None else lambda connection: will,
        backoff=Backoff(first_s=0.05, cap_s=0.2),
    )
    session.start()
    return session


def _wait(inbox: "queue.Queue[SessionEvent]", accept: Callable[[SessionEvent], bool], timeout_s: float = 60) -> None:
    until_s = time.monotonic() + timeout_s
    while not accept(inbox.get(timeout=max(0.01, until_s - time.monotonic()))):
        pass


def _inbox(session: MqttSession) -> "queue.Queue[SessionEvent]":
    return session._loop._intake._inbox


def test_a_session_works_and_outlives_a_kill(broker: BrokerProcess) -> None:
    session = _session(broker, "a", "t/#")
    _wait(_inbox(session), lambda event: isinstance(event, Connected))
    session.publish("t/x", b"1")
    _wait(_inbox(session), lambda event: isinstance(event, Received) and event.payload == b"1")
    port = broker.port
    broker.kill()
    assert not broker.alive
    broker.start()
    assert broker.port == port
    _wait(_inbox(session), lambda event: isinstance(event, Connected))
    session.publish("t/x", b"2")
    _wait(_inbox(session), lambda event: isinstance(event, Received) and event.payload == b"2")
    session.stop(2)


def test_blobs_are_fetched_and_absent_ones_are_silent(broker: BrokerProcess, tmp_path: Path) -> None:
    publisher = Publisher(broker.port)
    data = os.urandom(300_000)
    reference = publisher.blob(data)
    downloader = Downloader(
        BrokerSettings(broker.host, broker.port), "gw1.down", TOPICS, BlobStore(tmp_path / "blobs"), silence_s=1.0
    )
    assert downloader.fetch(reference, timeout_s=60).read_bytes() == data
    with pytest.raises(BlobUnavailable, match="silent"):
        downloader.fetch(make_reference(b"absent")[0], timeout_s=60)
    publisher.close()


def test_the_largest_message_passes(broker: BrokerProcess) -> None:
    session = _session(broker, "a", "t")
    session.publish("t", bytes(512 * 1024))
    _wait(_inbox(session), lambda event: isinstance(event, Received) and len(event.payload) == 512 * 1024)
    session.stop(2)


def test_only_this_machine_is_served(broker: BrokerProcess) -> None:
    assert broker.host == "127.0.0.1"
    listening = Path("/proc/net/tcp").read_text().split()
    assert f"0100007F:{broker.port:04X}" in listening
    assert f"00000000:{broker.port:04X}" not in listening


@pytest.mark.mosquitto
def test_an_orderly_restart_keeps_retained_messages(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "broker")
    broker.start()
    publisher = Publisher(broker.port)
    publisher.retain("t", b"kept")
    broker.restart()
    session = _session(broker, "a", "t")
    _wait(_inbox(session), lambda event: isinstance(event, Received) and event.payload == b"kept")
    publisher.close()
    session.stop(2)
    broker.stop()
    broker.stop()


@pytest.mark.mosquitto
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "broker", settings=["no_such_setting 1"])
    with pytest.raises(TransientError, match="no_such_setting"):
        broker.start()
    assert not broker.alive


@pytest.mark.mosquitto
def test_a_port_given_is_kept(tmp_path: Path) -> None:
    first = Mosquitto(tmp_path / "first")
    first.start()
    second = Mosquitto(tmp_path / "second", port=first.port)
    try:
        with pytest.raises(TransientError, match="in use"):
            second.start()
    finally:
        first.kill()
        second.kill()


def test_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_mosquitto", lambda: None)
    assert isinstance(make_broker("auto", tmp_path), IotCore)
    assert isinstance(make_broker("iotcore", tmp_path), IotCore)
    with pytest.raises(ConfigError, match="apt-get install mosquitto"):
        make_broker("mosquitto", tmp_path)


@pytest.mark.mosquitto
def test_auto_prefers_mosquitto(tmp_path: Path) -> None:
    assert find_mosquitto() is not None
    assert isinstance(make_broker("auto", tmp_path), Mosquitto)


@pytest.mark.parametrize("kind", [pytest.param("mosquitto", marks=pytest.mark.mosquitto), "iotcore"])
def test_the_demos_broker_is_not_left_behind_by_a_demo_that_is_killed(tmp_path: Path, kind: str) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from server_bridge.demo.broker import make_broker\n"
        "broker = make_broker(sys.argv[1], pathlib.Path(sys.argv[2]))\n"
        "broker.start()\n"
        "print(broker.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, kind, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    until_s = time.monotonic() + 60
    while _listens(int(killed.stdout)):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_free_port_is_given_to_no_outgoing_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "range"
    monkeypatch.setattr(module, "_OUTGOING_PORTS", told)
    told.write_text("30000\t60999\n")
    assert all(20_000 <= free_port() < 30_000 for _ in range(40))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 20_000))
        told.write_text("20001\t60999\n")
        assert free_port() != 20_000
    for told_nothing in ("", "1024 65535\n", "words\n"):
        told.write_text(told_nothing)
        assert 0 < free_port() < 65_536
