"""Commands that the bridge did not sign for this gateway, or that the broker kept, are refused."""

import base64
import json
import queue
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.link.events import Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.ota.command_keys import verify_signature
from edge_agent.runtime.orders import Orders
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import Configure, Identify, Reply
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES
from tests.broker import Mosquitto
from tests.runtime.desk import (
    FLEET,
    GATEWAY,
    IDENTIFY,
    TOPICS,
    WAIT_S,
    Desk,
    Signer,
    bridge_session,
    statuses,
)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("misaddressed", lambda desk: desk.payload("c1", IDENTIFY, gateway="gw2")),
        ("misaddressed", lambda desk: desk.payload("c1", IDENTIFY, fleet="line2")),
        ("unsigned", lambda desk: Signer().signed("c1", 1, "boot1", IDENTIFY)),
        ("unsigned", lambda desk: Signer(key_id="other").signed("c1", 1, "boot1", IDENTIFY)),
        ("unsigned", lambda desk: edited(desk, signature="")),
        ("unsigned", lambda desk: edited(desk, signature="no base64!")),
        ("unsigned", lambda desk: edited(desk, signature=base64.b64encode(b"\0" * 64).decode())),
        ("unsigned", lambda desk: edited(desk, body='{"schema":1}')),
        ("malformed", lambda desk: edited(desk, schema=2)),
        ("malformed", lambda desk: desk.payload("c1", IDENTIFY)[:-1]),
        ("malformed", lambda desk: b""),
        ("malformed", lambda desk: b"x" * 10_000_000),
        ("malformed", lambda desk: signed_text(desk, "{}")),
    ],
)
def test_what_the_bridge_did_not_sign_for_us_is_refused_and_not_answered(
    desk: Desk, kind: str, payload: Callable[[Desk], bytes]
) -> None:
    for _ in range(2):
        desk.orders.receive(payload(desk), retained=False)
    assert desk.orders.refused == {kind: 2}
    assert (desk.replies(), desk.identified, desk.worker.begun) == ([], 0, [])
    assert desk.database.query("SELECT * FROM command") == []
    assert statuses(desk.order("c2", IDENTIFY)) == ["ok"]


def edited(desk: Desk, **fields: object) -> bytes:
    return json.dumps({**json.loads(desk.payload("c1", IDENTIFY)), **fields}).encode()


def signed_text(desk: Desk, body: str) -> bytes:
    signature = base64.b64encode(desk.signer.key.sign(body.encode())).decode()
    return json.dumps({"schema": 1, "key_id": desk.signer.key_id, "signature": signature, "body": body}).encode()


def test_a_retained_command_is_refused_however_well_signed(desk: Desk) -> None:
    desk.orders.receive(desk.payload("c1", IDENTIFY), retained=True)
    assert (desk.orders.refused, desk.identified, desk.replies()) == ({"retained": 1}, 0, [])


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 10_000), byte=st.integers(1, 255))
def test_one_changed_byte_is_never_obeyed(place: int, byte: int) -> None:
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        whole = desk.payload("c1", Configure(training_enabled=False))
        changed = bytearray(whole)
        changed[place % len(whole)] ^= byte
        desk.orders.receive(bytes(changed), retained=False)
        assert desk.configured == [] or json.loads(changed)["body"] == json.loads(whole)["body"]
        desk.close()


@settings(max_examples=150, deadline=None)
@given(key=st.text(max_size=5) | st.just("command-1"), signature=st.binary(max_size=80), body=st.binary(max_size=50))
def test_no_signature_bytes_make_the_check_raise(key: str, signature: bytes, body: bytes) -> None:
    assert not verify_signature(Signer().public, key, signature, body)


def test_over_a_real_broker_a_retained_command_is_told_from_a_sent_one(mosquitto: Mosquitto, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    broker = BrokerSettings(mosquitto.host, mosquitto.port)
    with bridge_session(broker, TOPICS.reply(GATEWAY)) as (bridge, heard):
        bridge.publish(TOPICS.command(GATEWAY), desk.payload("c1", IDENTIFY), retain=True)
        first(heard, Published)
        events: queue.Queue[SessionEvent] = queue.Queue(100)
        gateway = MqttSession(
            broker,
            GATEWAY,
            clean_start=False,
            session_expiry_s=60,
            inbox=events,
            subscriptions=[Subscription(TOPICS.down_filter(GATEWAY))],
        )
        orders = Orders(
            desk.database,
            gateway,
            desk.worker,
            fleet=FLEET,
            gateway=GATEWAY,
            boot_id="boot1",
            reply_topic=TOPICS.reply(GATEWAY),
            verify=lambda key_id, signature, body: verify_signature(desk.signer.public, key_id, signature, body),
            configure=desk.configured.append,
            identify=lambda: desk.configured.append(Configure()),
        )
        gateway.start()
        retained = first(events, Received)
        orders.receive(retained.payload, retained=retained.retain)
        bridge.publish(TOPICS.command(GATEWAY), desk.payload("c2", Identify()))
        sent = first(events, Received)
        orders.receive(sent.payload, retained=sent.retain)
        reply = decode(Reply, first(heard, Received).payload, cap_bytes=REPLY_CAP_BYTES)
        assert (orders.refused, reply.command_id, reply.status) == ({"retained": 1}, "c2", "ok")
        assert len(desk.configured) == 1
        gateway.stop(2.0)
    desk.database.close()


Kind = TypeVar("Kind", bound=SessionEvent)


def first(events: "queue.Queue[SessionEvent]", kind: type[Kind]) -> Kind:
    """The next event of this kind."""
    while True:
        event = events.get(timeout=WAIT_S)
        if isinstance(event, kind):
            return event
