"""Sessions under pressure and with bad company: full queues, frozen brokers, rubbish, certificates."""

import queue
import socket
import time
from pathlib import Path

import pytest

from edge_agent.errors import TransientError
from edge_agent.link.connection import Connection
from edge_agent.link.events import Connected, Disconnected, Received, SessionEvent, Will
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings, TlsSettings
from server_bridge.demo.broker import Mosquitto
from tests.broker import new_mosquitto
from tests.link.certificates import make_authority
from tests.link.session_peer import MakePeer, Rubbish


def test_a_broker_that_names_the_takeover_is_believed_at_once(peer: MakePeer) -> None:
    with Rubbish(accept_first=True, then=bytes([0xE0, 2, 0x8E, 0])) as broker:
        alarm = peer(broker.port, "a").wait(Disconnected)
        assert alarm.taken_over
        assert alarm.retry_in_s >= 60
        assert "taken over" in alarm.reason


def test_a_full_inbox_holds_the_broker_back_and_loses_nothing(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t", inbox_size=10, receive_maximum=20)
    receiver.listening()
    sender = peer(mosquitto.port, "a")
    for number in range(500):
        sender.session.publish("t", b"%d" % number)
    sender.outcome(500)
    time.sleep(0.5)
    assert receiver.inbox.qsize() <= 10
    assert receiver.session.backlog <= 3 * 20
    assert receiver.session.connected
    got = [receiver.wait(Received).payload for _ in range(500)]
    assert got == [b"%d" % number for number in range(500)]


def test_a_full_inbox_holds_back_even_qos_0(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t", inbox_size=5, receive_maximum=10)
    receiver.listening()
    sender = peer(mosquitto.port, "a")
    for number in range(200):
        sender.session.publish("t", b"%d" % number, qos=0)
    sender.outcome(200)
    time.sleep(0.3)
    assert receiver.session.backlog <= 3 * 10
    got = [receiver.wait(Received).payload for _ in range(200)]
    assert got == [b"%d" % number for number in range(200)]


def test_a_reader_stuck_for_longer_than_keepalive_loses_nothing(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t", inbox_size=5, receive_maximum=5, keepalive_s=1, expiry_s=600)
    receiver.listening()
    sender = peer(mosquitto.port, "a")
    for number in range(100):
        sender.session.publish("t", b"%d" % number)
    sender.outcome(100)
    time.sleep(4)
    got: set[bytes] = set()
    while len(got) < 100:
        got.add(receiver.wait(Received).payload)


def test_the_queue_refuses_when_full_until_outcomes_are_read(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", inbox_size=2, max_queued=5)
    tokens = [one.session.publish("t", b"x", timeout_s=1) for _ in range(5)]

    def flood() -> None:
        for _ in range(10):
            one.session.publish("t", b"x", timeout_s=0.3)

    with pytest.raises(TransientError, match="already wait"):
        flood()
    one.outcome(tokens[-1])
    one.session.publish("t", b"x", timeout_s=60)


def test_a_frozen_broker_is_noticed(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", keepalive_s=1)
    one.wait(Connected)
    mosquitto.pause()
    try:
        one.wait(Disconnected, timeout_s=30)
        assert not one.session.connected
    finally:
        mosquitto.resume()
    one.wait(Connected)


def test_a_dead_network_thread_is_noticed(mosquitto: Mosquitto) -> None:
    def explode(connection: int) -> Will:
        raise RuntimeError("a fault of the program")

    inbox: queue.Queue[SessionEvent] = queue.Queue(10)
    session = MqttSession(
        BrokerSettings("127.0.0.1", mosquitto.port),
        "a",
        clean_start=True,
        session_expiry_s=0,
        inbox=inbox,
        will=explode,
    )
    session.start()
    until_s = time.monotonic() + 60
    while session.alive and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not session.alive
    assert not session.connected
    assert isinstance(session.failure, RuntimeError)
    session.publish("t", b"still refuses nothing, waits for a restart")
    assert not session.stop(0.1)


def test_what_is_no_mqtt_ends_the_connection_only(peer: MakePeer) -> None:
    with Rubbish() as rubbish:
        one = peer(rubbish.port, "a")
        one.wait(Disconnected)
        one.wait(Disconnected)
        assert one.session.alive


def test_a_topic_that_is_no_utf8_is_dropped_and_counted(peer: MakePeer) -> None:
    bad, good = bytes([0x30, 5, 0, 1, 0xFF, 0]) + b"x", bytes([0x30, 5, 0, 1]) + b"t" + bytes([0]) + b"y"
    with Rubbish(accept_first=True, then=bad + good) as broker:
        one = peer(broker.port, "a")
        one.payload(b"y")
        assert one.session.malformed_topics >= 1


def test_a_packet_over_our_maximum_is_not_read(peer: MakePeer) -> None:
    header = bytes([0x30, 0xFF, 0xFF, 0xFF, 0x7F])  # 268,435,455 bytes to follow
    with Rubbish(accept_first=True, then=header + bytes(5000)) as broker:
        assert "over the maximum" in peer(broker.port, "a").wait(Disconnected).reason


def test_a_message_that_ends_every_connection_is_given_up(peer: MakePeer) -> None:
    with Rubbish(accept_first=True) as poison_hater:
        one = peer(poison_hater.port, "a")
        outcome = one.outcome(one.session.publish("t", b"poison"))
        assert not outcome.ok
        assert "given up" in outcome.reason
        assert one.session.connection >= 3


@pytest.mark.parametrize("trusted", [True, False])
def test_mutual_tls(tmp_path: Path, peer: MakePeer, trusted: bool) -> None:
    authority = make_authority(tmp_path / "authority")
    stranger = authority if trusted else make_authority(tmp_path / "stranger")
    broker_files = authority.sign("127.0.0.1", tmp_path / "broker-cert")
    own_files = stranger.sign("gw1", tmp_path / "own")
    broker = new_mosquitto(
        tmp_path,
        f"cafile {authority.certificate}",
        f"certfile {broker_files.certificate}",
        f"keyfile {broker_files.key}",
        "require_certificate true",
        "tls_version tlsv1.2",
    )
    try:
        tls = TlsSettings(authority.certificate, own_files.certificate, own_files.key)
        one = peer(broker.port, "gw1", "t", tls=tls)
        if trusted:
            for number in range(50):
                one.session.publish("t", b"%d" % number + bytes(100_000))
            assert len(one.wait(Received, lambda event: event.payload[:2] == b"49").payload) == 100_002
        else:
            one.wait(Disconnected)
            one.wait(Disconnected)
            assert not any(isinstance(event, Connected) for event in one.seen)
    finally:
        broker.kill()


def test_nagle_is_off(mosquitto: Mosquitto, peer: MakePeer, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[int] = []

    class Watched(Connection):
        def step(self, timeout_s: float, waker: socket.socket, *, reading: bool) -> None:
            sock = self._client.socket()
            if isinstance(sock, socket.socket):
                options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().step(timeout_s, waker, reading=reading)

    monkeypatch.setattr("edge_agent.link.connection.Connection", Watched)
    peer(mosquitto.port, "a").wait(Connected)
    assert options
    assert all(options)
