"""A session to talk with, and what stands between it and a broker: a relay that can be cut, a listener of rubbish."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from edge_agent.link.events import Connected, Published, Received, SessionEvent, Subscription, Will
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings, TlsSettings

E = TypeVar("E")
QUICK = Backoff(first_s=0.05, cap_s=0.2)
WAIT_S = 60.0


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

    def wait(self, kind: type[E], accept: Callable[[E], bool] = lambda event: True, timeout_s: float = WAIT_S) -> E:
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

    def payload(self, payload: bytes, timeout_s: float = WAIT_S) -> Received:
        return self.wait(Received, lambda event: event.payload == payload, timeout_s)

    def listening(self) -> Connected:
        """Until its subscriptions are in place: a broker takes what comes over one connection in order."""
        connected = self.wait(Connected)
        self.outcome(self.session.publish("listening", b""))
        return connected

    def outcome(self, token: int) -> Published:
        return self.wait(Published, lambda event: event.token == token)


MakePeer = Callable[..., Peer]


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
