"""A plant with a production broker: an authority, two gateways, the bridge, and a witness that reads everything."""

import queue
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings, TlsSettings
from edge_agent.link.tls import tls_context
from server_bridge.pki.authority import Authority
from server_bridge.pki.certificates import issue, utc_now
from server_bridge.pki.folder import write_credentials
from tests.security.broker import ProductionMosquitto

FLEET, OTHER_FLEET = "toy", "other"
GATEWAYS = ("gw1", "gw2")
WITNESS = "witness"
QUICK = Backoff(first_s=0.05, cap_s=0.2)
WAIT_S = 60.0


class Site:
    """Every certificate there is lies in one folder by name; the tests pick what they steal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.create(directory / "fleet", FLEET)
        self.stranger = Authority.create(directory / "stranger", FLEET)
        self.tls = directory / "tls"
        files = dict(self.authority.bridge())
        for gateway in GATEWAYS:
            files |= self.authority.gateway(gateway)
        files |= self._pair(WITNESS, self.authority)
        write_credentials(self.tls, files)
        self.broker_files = self.authority.broker(["127.0.0.1", "localhost"])
        with (self.broker_files / "acl").open("a") as acl:
            acl.write(f"\nuser {WITNESS}\ntopic readwrite #\n")
        self.broker = ProductionMosquitto(directory / "broker", self.broker_files)
        self.broker.start()

    def pair(self, name: str, authority: Authority, *, days_ago: int = 0) -> TlsSettings:
        """A certificate of its own, made ``days_ago`` for one day."""
        folder = self.directory / f"own-{len(list(self.directory.iterdir()))}"
        write_credentials(folder, self._pair(name, authority, days_ago=days_ago))
        return TlsSettings(self.tls / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")

    def of(self, name: str) -> TlsSettings:
        """The proper certificate of an identity, whatever the client calls itself."""
        return TlsSettings(self.tls / "ca.crt", self.tls / f"{name}.crt", self.tls / f"{name}.key")

    def settings(self, tls: TlsSettings | None, *, host: str = "127.0.0.1") -> BrokerSettings:
        """The broker as seen with this certificate."""
        return BrokerSettings(host, self.broker.port, tls=tls)

    def visitor(self, name: str, *filters: str, tls: TlsSettings | None = None, client_id: str = "") -> "Visitor":
        """A session that shows the certificate of ``name``."""
        return Visitor(self.settings(tls or self.of(name)), client_id or name, *filters)

    def witness(self) -> "Visitor":
        """Reads every topic; connected when this returns."""
        witness = self.visitor(WITNESS, "#")
        witness.wait(Connected)
        witness.ok("sync/witness", b"ready")
        witness.heard("sync/witness")
        return witness

    def close(self) -> None:
        """Kill the broker."""
        self.broker.kill()

    def _pair(self, name: str, authority: Authority, *, days_ago: int = 0) -> Mapping[str, bytes]:
        pair = issue(authority._pair, name, days=1, now=utc_now() - timedelta(days=days_ago))
        return {f"{name}.crt": pair.certificate_pem, f"{name}.key": pair.key_pem}


class Visitor:
    """A session and what it saw."""

    def __init__(self, settings: BrokerSettings, client_id: str, *filters: str) -> None:
        self.client_id = client_id
        self.seen: list[SessionEvent] = []
        self._heard = 0
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(10_000)
        self.session = MqttSession(
            settings,
            client_id,
            clean_start=True,
            session_expiry_s=0,
            inbox=self.inbox,
            subscriptions=[Subscription(one) for one in filters],
            backoff=QUICK,
        )
        self.session.start()

    def wait(
        self, kind: type[SessionEvent], accept: Callable[[SessionEvent], bool] = lambda event: True
    ) -> SessionEvent:
        """The next such event."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            try:
                event = self.inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            self.seen.append(event)
            if isinstance(event, kind) and accept(event):
                return event
        raise AssertionError(f"{self.client_id} saw no {kind} in {WAIT_S} s but {self.seen[-8:]}")

    def outcome(self, topic: str, payload: bytes, *, retain: bool = False) -> Published:
        """Publish and hear what the broker answers."""
        token = self.session.publish(topic, payload, retain=retain)
        answer = self.wait(Published, lambda event: isinstance(event, Published) and event.token == token)
        assert isinstance(answer, Published)
        return answer

    def ok(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish; it must be allowed."""
        assert self.outcome(topic, payload, retain=retain).ok, topic

    def denied(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish; it must be refused."""
        answer = self.outcome(topic, payload, retain=retain)
        assert not answer.ok, topic
        assert answer.reason == "Not authorized"

    def heard(self, topic: str) -> bytes:
        """The next message on a topic, after those heard before."""
        while True:
            for number, event in enumerate(self.seen[self._heard :], start=self._heard + 1):
                if isinstance(event, Received) and event.topic == topic:
                    self._heard = number
                    return event.payload
            self._heard = len(self.seen)
            self.wait(Received)

    def topics(self) -> set[str]:
        """Every topic heard of so far."""
        while not self.inbox.empty():
            self.seen.append(self.inbox.get())
        return {event.topic for event in self.seen if isinstance(event, Received)}

    def refused(self) -> str:
        """It never gets in, twice; the last reason."""
        self.wait(Disconnected)
        last = self.wait(Disconnected)
        assert not any(isinstance(event, Connected) for event in self.seen)
        assert isinstance(last, Disconnected)
        return last.reason

    def close(self) -> None:
        """End."""
        self.session.stop(2)
        assert self.session.failure is None


def die_with_will(settings: BrokerSettings, client_id: str, topic: str) -> bool:
    """Connect with a retained will and drop the socket; whether the broker let us in."""
    assert settings.tls is not None
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)
    client.tls_set_context(tls_context(settings.tls, client_id))
    client.will_set(topic, b"will", qos=1, retain=True)
    client.connect(settings.host, settings.port)
    until_s = time.monotonic() + WAIT_S
    while not client.is_connected() and client.socket() is not None and time.monotonic() < until_s:
        client.loop(0.1)
    let_in = client.is_connected()
    sock = client.socket()
    if sock is not None:
        sock.close()
    return let_in
