"""Forged, replayed, re-addressed and retained commands at a running agent."""

import queue
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.link.events import Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.messages import (
    PRESENCE_CAP_BYTES,
    REPLY_CAP_BYTES,
    Command,
    Identify,
    Presence,
    Reply,
    SignedCommand,
    sign_command,
)
from edge_agent.wire.messages.command import CommandAction, Sign
from edge_agent.wire.topics import FleetTopics
from server_bridge.releases.keys import FleetKeys, OnlineKeys
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import FLEET, ToyFleet
from tests.e2e.gateway import RunningAgent
from tests.e2e.toy import Drift
from tests.runtime.desk import TRAIN
from tests.soak.invariants import log_entries

GATEWAY = "gw1"
TOPICS = FleetTopics(FLEET)
HEARD_S = 60.0


def signing(keys: OnlineKeys) -> Sign:
    return lambda body: (keys.command_id, bytes.fromhex(keys.command.sign(body).signature))


class Attacker:
    """Has the bridge's place at the broker; the key only where a test gives it."""

    def __init__(self, broker: BrokerSettings) -> None:
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(10_000)
        self.session = MqttSession(
            broker,
            "attacker",
            clean_start=True,
            session_expiry_s=0,
            inbox=self.inbox,
            subscriptions=[Subscription(f"{TOPICS.root}/up/{GATEWAY}/#")],
        )
        self.session.start()
        self.replies: list[Reply] = []
        self.boot_id = ""

    def send(self, payload: bytes, *, retain: bool = False) -> None:
        self.session.publish(TOPICS.command(GATEWAY), payload, retain=retain, timeout_s=5.0)

    def hear(self, seconds: float = 0.0) -> None:
        until_s = time.monotonic() + seconds
        while True:
            try:
                event = self.inbox.get(timeout=max(0.01, until_s - time.monotonic()))
            except queue.Empty:
                return
            if isinstance(event, Received) and event.payload and event.topic == TOPICS.reply(GATEWAY):
                self.replies.append(decode(Reply, event.payload, cap_bytes=REPLY_CAP_BYTES))
            elif isinstance(event, Received) and event.payload and event.topic == TOPICS.presence(GATEWAY):
                presence = decode(Presence, event.payload, cap_bytes=PRESENCE_CAP_BYTES)
                self.boot_id = presence.boot_id if presence.online else self.boot_id

    def learn_boot_id(self) -> None:
        until_s = time.monotonic() + HEARD_S
        while not self.boot_id:
            assert time.monotonic() < until_s, "the agent did not say that it is there"
            self.hear(0.2)

    def answered(self, command_id: str, status: str) -> None:
        until_s = time.monotonic() + HEARD_S
        while not any((reply.command_id, reply.status) == (command_id, status) for reply in self.replies):
            assert time.monotonic() < until_s, (command_id, status, self.replies)
            self.hear(0.2)


@pytest.fixture
def attacker(mosquitto: Mosquitto) -> Iterator[Attacker]:
    made = Attacker(BrokerSettings(mosquitto.host, mosquitto.port))
    yield made
    made.session.stop(2.0)


@pytest.mark.long
def test_only_what_the_bridges_key_signed_for_this_start_of_this_gateway_is_obeyed(
    tmp_path: Path, mosquitto: Mosquitto, attacker: Attacker
) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, {GATEWAY: Drift("none")})
    genuine = signing(OnlineKeys.load(fleet.bridge_dir / "keys"))
    stranger = signing(FleetKeys.generate().online)

    def command(command_id: str, sequence: int, action: CommandAction, sign: Sign, **address: str) -> bytes:
        named = {"fleet": FLEET, "gateway": GATEWAY, "boot_id": attacker.boot_id} | address
        made = Command(command_id=command_id, sequence=sequence, duration_s=60.0, action=action, **named)
        return encode(sign_command(made, sign))

    fleet.start_bridge()
    try:
        with RunningAgent(fleet.agent_settings(GATEWAY)) as agent:
            fleet.wait("its command keys", _is_committed, timeout_s=120)
            attacker.learn_boot_id()
            first = command("genuine-1", 100, Identify(), genuine)
            attacker.send(first)
            attacker.answered("genuine-1", "ok")
            forged = [
                command("forged-stranger", 200, TRAIN, stranger),
                command("forged-name", 201, TRAIN, lambda body: (genuine(body)[0], stranger(body)[1])),
                command("forged-nothing", 202, TRAIN, lambda body: (genuine(body)[0], b"")),
                _altered(command("forged-altered", 203, TRAIN, genuine)),
                command("forged-gateway", 204, TRAIN, genuine, gateway="gw2"),
                command("forged-fleet", 205, TRAIN, genuine, fleet="other"),
                *(secrets.token_bytes(size) for size in (1, 100, 100_000)),
            ]
            for payload in forged:
                attacker.send(payload)
            attacker.send(command("forged-retained", 206, TRAIN, genuine), retain=True)
            attacker.send(command("old-boot", 207, TRAIN, genuine, boot_id="another-start"))
            attacker.send(first)
            attacker.send(command("low", 50, TRAIN, genuine))
            attacker.answered("old-boot", "stale-boot")
            attacker.answered("low", "sequence-low")
            attacker.send(command("genuine-2", 300, Identify(), genuine))
            attacker.answered("genuine-2", "ok")
            attacker.hear(2.0)
            for each in ("forged-stranger", "forged-gateway", "forged-retained"):
                assert not [reply for reply in attacker.replies if reply.command_id == each]
            assert not [reply for reply in attacker.replies if reply.status == "accepted"], "nothing was begun"
            kinds = _refusals(agent)
            attacker.send(b"", retain=True)
            assert agent.stop()[0] == 0
    finally:
        fleet.stop()
    assert {"unsigned", "misaddressed", "malformed", "retained"} <= kinds


@pytest.mark.long
def test_a_command_retained_while_the_agent_was_away_is_not_obeyed_at_its_start(
    tmp_path: Path, mosquitto: Mosquitto, attacker: Attacker
) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, {GATEWAY: Drift("none")})
    genuine = signing(OnlineKeys.load(fleet.bridge_dir / "keys"))
    made = Command(
        fleet=FLEET, gateway=GATEWAY, boot_id="any", command_id="c", sequence=1, duration_s=60.0, action=Identify()
    )
    attacker.send(encode(sign_command(made, genuine)), retain=True)
    fleet.start_bridge()
    try:
        with RunningAgent(fleet.agent_settings(GATEWAY)) as agent:
            agent.wait("the refusal", lambda: "retained" in _refusals(agent))
            attacker.hear(2.0)
            assert attacker.replies == []
            assert agent.stop()[0] == 0
    finally:
        fleet.stop()


def _altered(payload: bytes) -> bytes:
    """The bridge's signature over another body."""
    envelope = decode(SignedCommand, payload, cap_bytes=len(payload))
    return encode(envelope.model_copy(update={"body": envelope.body.replace('"batch_size":8', '"batch_size":1')}))


def _refusals(agent: RunningAgent) -> set[str]:
    logged = log_entries(agent.log)  # the last line may be half written
    return {str(line["kind"]) for line in logged if line.get("event") == "command_refused"}


def _is_committed(store: Store) -> bool:
    return [known.state.ota_state for known in store.gateways.states().values()] == ["committed"]
