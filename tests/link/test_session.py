import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from edge_agent.errors import TransientError
from edge_agent.link.connection import Connection
from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent, Subscription, Will
from edge_agent.link.outgoing import PayloadTooLarge
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings, TlsSettings
from server_bridge.demo.broker import Mosquitto, free_port
from tests.broker import new_mosquitto
from tests.link.certificates import make_authority

E = TypeVar("E")
QUICK = Backoff(first_s=0.05, cap_s=0.2)


class Peer:
    """A session with its inbox, and waits with a deadline."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *filters: str,
        inbox_size: int = 10_000,
        expiry_s: int = 0,
        will: Callable[[int], Will] | None = None,
        keepalive_s: int = 30,
        receive_maximum: int = 100,
        max_queued: int = 1000,
        tls: TlsSettings | None = None,
    ) -> None:
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(inbox_size)
        self.seen: list[SessionEvent] = []
        self.session = MqttSession(
            BrokerSettings("127.0.0.1", port, keepalive_s=keepalive_s, tls=tls),
            client_id,
            clean_start=expiry_s == 0,
            session_expiry_s=expiry_s,
            inbox=self.inbox,
            subscriptions=[Subscription(one) for one in filters],
            will=will,
            receive_maximum=receive_maximum,
            max_queued=max_queued,
            backoff=QUICK,
        )
        self.session.start()

    def wait(self, kind: type[E], accept: Callable[[E], bool] = lambda event: True, timeout_s: float = 10) -> E:
        until_s = time.monotonic() + timeout_s
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                event = self.inbox.get(timeout=left_s)
            except queue.Empty:
                break
            self.seen.append(event)
            if isinstance(event, kind) and accept(event):
                return event
        raise AssertionError(f"no {kind.__name__} in {timeout_s} s; saw {self.seen[-10:]}")

    def payload(self, payload: bytes, timeout_s: float = 10) -> Received:
        return self.wait(Received, lambda event: event.payload == payload, timeout_s)

    def outcome(self, token: int) -> Published:
        return self.wait(Published, lambda event: event.token == token)


MakePeer = Callable[..., Peer]


@pytest.fixture
def peer() -> Iterator[MakePeer]:
    peers: list[Peer] = []

    def make(port: int, client_id: str, *filters: str, **options: object) -> Peer:
        made = Peer(port, client_id, *filters, **options)  # type: ignore[arg-type]  # passed through
        peers.append(made)
        return made

    yield make
    for one in peers:
        one.session.stop(2)
        assert one.session.failure is None


def test_a_message_goes_from_one_session_to_another(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t/#")
    receiver.wait(Connected)
    sender = peer(mosquitto.port, "a")
    token = sender.session.publish("t/x", b"hello")
    assert sender.outcome(token) == Published(token, True, "Success")
    assert receiver.wait(Received) == Received("t/x", b"hello", False)
    assert receiver.session.connected


def test_a_broker_absent_at_start_is_waited_for(tmp_path: Path, peer: MakePeer) -> None:
    broker = Mosquitto(tmp_path / "broker", port=free_port())
    early = peer(broker.port, "a", "t")
    token = early.session.publish("t", b"queued while away")
    assert "refused" in early.wait(Disconnected).reason.lower()
    broker.start()
    try:
        early.wait(Connected)
        early.payload(b"queued while away")
        assert token == 1
    finally:
        broker.kill()


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_session_resumes_and_subscribes_again(mosquitto: Mosquitto, peer: MakePeer, how: str) -> None:
    receiver = peer(mosquitto.port, "b", "t/#", expiry_s=600)
    sender = peer(mosquitto.port, "a", expiry_s=600)
    receiver.wait(Connected)
    sender.wait(Connected)
    if how == "restart":
        mosquitto.restart()
    else:
        mosquitto.kill()
        mosquitto.start()
    again = receiver.wait(Connected)
    assert again.session_present == (how == "restart")
    sender.session.publish("t/x", b"after")
    receiver.payload(b"after")
    assert receiver.session.connection > 1


def test_retained_messages_come_again_after_every_connect(mosquitto: Mosquitto, peer: MakePeer) -> None:
    sender = peer(mosquitto.port, "a")
    sender.outcome(sender.session.publish("t/kept", b"state", retain=True))
    receiver = peer(mosquitto.port, "b", "t/#", expiry_s=600)
    assert receiver.payload(b"state").retain
    mosquitto.restart()
    receiver.wait(Connected)
    assert receiver.payload(b"state").retain


def test_unsubscribing_and_subscribing_brings_a_retained_message_again(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", "t/kept", expiry_s=600)
    one.session.publish("t/kept", b"state", retain=True)
    one.payload(b"state")
    for _ in range(3):
        one.session.unsubscribe("t/kept")
        one.session.subscribe(Subscription("t/kept"))
        assert one.payload(b"state").retain


def test_an_unsubscribed_filter_is_not_renewed(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", "t/old", "t/new")
    one.wait(Connected)
    one.session.unsubscribe("t/old")
    mosquitto.restart()
    one.wait(Connected)
    one.session.publish("t/old", b"not wanted")
    one.session.publish("t/new", b"wanted")
    one.payload(b"wanted")
    assert not any(isinstance(event, Received) and event.payload == b"not wanted" for event in one.seen)


def test_no_subscriber_and_no_right_are_told_apart(tmp_path: Path, peer: MakePeer) -> None:
    (tmp_path / "acl").write_text("topic read #\ntopic write open\n")
    broker = new_mosquitto(tmp_path, f"acl_file {tmp_path}/acl")
    try:
        one = peer(broker.port, "a")
        assert one.outcome(one.session.publish("open", b"x")) == Published(1, True, "No matching subscribers")
        assert one.outcome(one.session.publish("closed", b"x")) == Published(2, False, "Not authorized")
        assert one.session.connected
    finally:
        broker.kill()


def test_payloads_are_bytes_within_the_cap(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", "t")
    with pytest.raises(PayloadTooLarge, match="cap is 524288"):
        one.session.publish("t", bytes(524_289))
    with pytest.raises(TypeError):
        one.session.publish("t", memoryview(b"x"))  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(ValueError, match="no topic name"):
        one.session.publish("t/#", b"x")
    assert one.outcome(one.session.publish("t", bytes(524_288))).ok


def test_a_packet_over_the_brokers_own_limit_is_never_sent(tmp_path: Path, peer: MakePeer) -> None:
    broker = new_mosquitto(tmp_path, "max_packet_size 5000")
    try:
        one = peer(broker.port, "a", "t")
        outcome = one.outcome(one.session.publish("t", bytes(6000)))
        assert not outcome.ok
        assert "at most 5000" in outcome.reason
        one.session.publish("t", b"small")
        one.payload(b"small")
        assert one.session.connection == 1
    finally:
        broker.kill()


def test_a_will_names_its_connection(mosquitto: Mosquitto, peer: MakePeer) -> None:
    watcher = peer(mosquitto.port, "w", "will")
    watcher.wait(Connected)
    proxy = Cut(mosquitto.port)
    one = peer(proxy.port, "a", will=lambda connection: Will("will", b"gone %d" % connection))
    for _ in range(3):
        connection = one.wait(Connected).connection
        proxy.cut()
        assert watcher.payload(b"gone %d" % connection).payload
    proxy.close()


def test_an_orderly_stop_leaves_no_will_and_sends_what_is_queued(mosquitto: Mosquitto, peer: MakePeer) -> None:
    watcher = peer(mosquitto.port, "w", "#")
    watcher.wait(Connected)
    one = peer(mosquitto.port, "a", will=lambda connection: Will("will", b"gone"))
    for number in range(200):
        one.session.publish("t", b"%d" % number)
    assert one.session.stop(5)
    watcher.payload(b"199")
    time.sleep(0.2)
    assert all(event.topic == "t" for event in watcher.seen if isinstance(event, Received))


def test_two_clients_with_one_id_do_not_storm(mosquitto: Mosquitto, peer: MakePeer) -> None:
    both = [peer(mosquitto.port, "same"), peer(mosquitto.port, "same")]
    until_s = time.monotonic() + 15
    alarms: list[Disconnected] = []
    while not alarms and time.monotonic() < until_s:
        time.sleep(0.05)
        events = [event for one in both for event in one.inbox.queue]
        alarms = [event for event in events if isinstance(event, Disconnected) and event.taken_over]
    assert alarms[0].retry_in_s >= 60
    time.sleep(1)
    connections = [one.session.connection for one in both]
    time.sleep(1)
    assert [one.session.connection for one in both] == connections
    assert sum(connections) <= 2 * 4 + 1
    assert sum(one.session.connected for one in both) == 1


def test_a_broker_that_names_the_takeover_is_believed_at_once(peer: MakePeer) -> None:
    with Rubbish(accept_first=True, then=bytes([0xE0, 2, 0x8E, 0])) as broker:
        alarm = peer(broker.port, "a").wait(Disconnected)
        assert alarm.taken_over
        assert alarm.retry_in_s >= 60
        assert "taken over" in alarm.reason


def test_a_full_inbox_holds_the_broker_back_and_loses_nothing(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t", inbox_size=10, receive_maximum=20)
    receiver.wait(Connected)
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
    receiver.wait(Connected)
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
    receiver.wait(Connected)
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
    one.session.publish("t", b"x", timeout_s=5)


def test_a_frozen_broker_is_noticed(mosquitto: Mosquitto, peer: MakePeer) -> None:
    one = peer(mosquitto.port, "a", keepalive_s=1)
    one.wait(Connected)
    mosquitto.pause()
    try:
        one.wait(Disconnected, timeout_s=6)
        assert not one.session.connected
    finally:
        mosquitto.resume()
    one.wait(Connected, timeout_s=20)


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
    until_s = time.monotonic() + 5
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


class Cut:
    """A relay whose connections can be cut, as a radio link's would be."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target_port))
            self._sockets = [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._relay, args=(source, target), daemon=True).start()

    @staticmethod
    def _relay(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        source.close()
        target.close()


class Rubbish:
    """A listener that answers with no MQTT, or accepts a CONNECT and hangs up at the next packet."""

    def __init__(self, *, accept_first: bool = False, then: bytes = b"") -> None:
        self._accept_first = accept_first
        self._then = then
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> "Rubbish":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                if not peer.recv(4096):
                    continue  # only looked whether somebody is there
                if self._accept_first:
                    peer.sendall(bytes([0x20, 3, 0, 0, 0]))
                    peer.sendall(self._then)
                    peer.recv(4096)
                else:
                    peer.sendall(bytes([0x20, 4, 0, 0, 0xFF, 0xFF, 0x33, 0x90, 0x01]))
