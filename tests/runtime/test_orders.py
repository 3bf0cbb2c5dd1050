import base64
import json
import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import StorageError
from edge_agent.link.events import Connected, Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.ota.command_keys import verify_signature
from edge_agent.runtime.orders import QUEUE_COMMANDS, OrderFailed, Orders
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import Configure, Identify, Reply, TrainFindings
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES
from tests.broker import Mosquitto
from tests.runtime.bench import deny, permit
from tests.runtime.desk import (
    EVALUATE,
    FLEET,
    GATEWAY,
    IDENTIFY,
    TOPICS,
    TRAIN,
    WAIT_S,
    Desk,
    Signer,
    wait,
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path)
    one.orders.start()
    yield one
    one.close()


def statuses(replies: list[Reply]) -> list[str]:
    return [reply.reason or reply.status for reply in replies]


def begin(desk: Desk, command_id: str) -> None:
    """Order it and wait until the worker is at it."""
    before = len(desk.worker.begun)
    assert statuses(desk.order(command_id))[-1] == "accepted"
    wait(lambda: len(desk.worker.begun) > before, f"the worker to begin {command_id}")


def test_configure_and_identify_are_carried_out_at_once_and_only_once(desk: Desk) -> None:
    configure = Configure(state_interval_s=5.0)
    for _ in range(3):
        (reply,) = desk.order("c1", configure)
        assert (reply.status, reply.command_id, reply.boot_id) == ("ok", "c1", "boot1")
    assert statuses(desk.order("c2", IDENTIFY)) == ["ok"]
    assert (desk.configured, desk.identified) == ([configure], 1)


def test_an_order_is_accepted_carried_out_and_answered(desk: Desk) -> None:
    ordered_s = time.monotonic()
    begin(desk, "c1")
    assert desk.orders.busy
    assert ordered_s + 60.0 <= desk.worker.deadlines_s[0] <= time.monotonic() + 60.0
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.result and reply.result.kind) == ("ok", "evaluate")
    wait(lambda: not desk.orders.busy, "rest")


def test_train_goes_to_the_worker_too(desk: Desk) -> None:
    desk.order("c1", TRAIN)
    desk.worker.finish_one()
    desk.replies(1)
    assert desk.worker.finished == ["c1"]


def test_a_repeated_command_is_answered_from_the_store(desk: Desk) -> None:
    begin(desk, "c1")
    assert statuses(desk.order("c1")) == ["accepted"]
    desk.worker.finish_one()
    first = desk.replies(1)
    assert desk.order("c1") == first
    replayed = desk.signer.signed("c1", 1, "boot1", EVALUATE)
    desk.orders.receive(replayed, retained=False)
    assert desk.replies() == first
    assert desk.worker.begun == ["c1"]


def test_a_failed_order_is_answered_with_its_reason_and_remembered(desk: Desk) -> None:
    desk.worker.error = OrderFailed("too-few-samples", "3 of 50 " + "x" * 5000)
    begin(desk, "c1")
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason, reply.detail[:8]) == ("error", "too-few-samples", "3 of 50 ")
    assert desk.order("c1") == [reply]


def test_a_round_without_an_update_is_answered_with_what_it_found_out(desk: Desk) -> None:
    desk.worker.error = OrderFailed("made-worse", "the loss rose", {"proof-loss-before": 1.0, "proof-loss-after": 2.0})
    desk.order("c1", TRAIN)
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason) == ("error", "made-worse")
    assert isinstance(reply.result, TrainFindings)
    assert (reply.result.round, reply.result.cohort) == (TRAIN.round, TRAIN.cohort)
    assert reply.result.metrics["proof-loss-after"] == 2.0
    assert desk.order("c1", TRAIN) == [reply]


def test_a_stored_result_answers_a_new_boot_id_too(desk: Desk) -> None:
    begin(desk, "c1")
    desk.worker.finish_one()
    (first,) = desk.replies(1)
    desk.restart("boot2")
    assert desk.order("c1") == [first.model_copy(update={"boot_id": "boot2"})]
    assert desk.worker.begun == ["c1"]


def test_a_crash_between_receipt_and_result_is_made_up_for_once(desk: Desk) -> None:
    begin(desk, "c1")
    desk.restart("boot2")
    assert desk.replies() == []
    old = desk.signer.signed("c1", 1, "boot1", EVALUATE)
    desk.orders.receive(old, retained=False)
    (reply,) = desk.replies()
    assert (reply.status, reply.boot_id) == ("stale-boot", "boot2")
    begin(desk, "c1")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]
    assert statuses(desk.order("c1")) == ["ok"]
    assert (desk.worker.begun, desk.worker.finished) == (["c1", "c1"], ["c1"])


def test_a_newer_order_supersedes(desk: Desk) -> None:
    begin(desk, "c1")
    replies = desk.order("c2")
    wait(lambda: desk.worker.begun == ["c1", "c2"], "the newer one")
    desk.worker.finish_one()
    wait(lambda: not desk.orders.busy, "rest")
    told = {(reply.command_id, reply.reason or reply.status) for reply in replies + desk.replies()}
    assert told == {("c1", "superseded"), ("c2", "accepted"), ("c2", "ok")}
    assert statuses(desk.order("c1")) == ["superseded"]
    assert desk.worker.begun == ["c1", "c2"]


def test_an_order_asked_for_again_after_a_newer_one_makes_no_second_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for command_id in ("c1", "c2", "c1"):
        assert statuses(desk.order(command_id)) == ["accepted"]
    for _ in range(3):
        desk.worker.finish_one()
    desk.orders.start()
    assert statuses(desk.replies(2)) == ["superseded", "ok"]
    assert statuses(desk.order("c1")) == ["superseded"]
    assert desk.worker.finished == ["c2"]
    desk.close()


def test_a_sequence_too_low_is_answered_with_the_highest(desk: Desk) -> None:
    desk.orders.receive(desk.signer.signed("c1", 7, "boot1", IDENTIFY), retained=False)
    desk.orders.receive(desk.signer.signed("c2", 7, "boot1", IDENTIFY), retained=False)
    desk.orders.receive(desk.signer.signed("c3", 3, "boot1", EVALUATE), retained=False)
    first, *low = desk.replies()
    assert first.status == "ok"
    assert [(reply.status, reply.highest_sequence) for reply in low] == [("sequence-low", 7)] * 2
    assert (desk.identified, desk.worker.begun) == (1, [])


def test_the_sequence_counts_per_boot_id(desk: Desk) -> None:
    desk.orders.receive(desk.signer.signed("c1", 900, "boot1", IDENTIFY), retained=False)
    desk.restart("boot2")
    desk.orders.receive(desk.signer.signed("c2", 1, "boot2", IDENTIFY), retained=False)
    assert statuses(desk.replies(2)) == ["ok", "ok"]


def test_a_replay_of_a_forgotten_command_is_not_obeyed(desk: Desk) -> None:
    first = desk.payload("first", IDENTIFY)
    desk.orders.receive(first, retained=False)
    for number in range(201):
        desk.order(f"c{number}", IDENTIFY)
    desk.orders.receive(first, retained=False)
    assert statuses(desk.replies()) == ["sequence-low"]
    assert desk.identified == 202
    assert desk.database.query("SELECT count(*) FROM command") == [(200,)]


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


def test_a_queue_that_is_full_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(QUEUE_COMMANDS):
        assert statuses(desk.order(f"c{number}")) == ["accepted"]
    assert statuses(desk.order("more")) == ["busy"]
    desk.orders.start()
    wait(lambda: desk.worker.begun == [f"c{QUEUE_COMMANDS - 1}"], "the newest")
    assert statuses(desk.replies(QUEUE_COMMANDS - 1)) == ["superseded"] * (QUEUE_COMMANDS - 1)
    begin(desk, "more")
    desk.close()


def test_a_stop_ends_the_order_without_an_answer(desk: Desk) -> None:
    begin(desk, "c1")
    desk.orders.stop(WAIT_S)
    assert not desk.orders.alive
    assert (desk.replies(), desk.worker.finished) == ([], [])


def test_a_command_the_disk_refuses_is_not_obeyed(desk: Desk) -> None:
    deny(desk.database, "command")
    with pytest.raises(StorageError):
        desk.order("c1")
    assert (desk.replies(), desk.worker.begun) == ([], [])
    permit(desk.database, "command")
    begin(desk, "c1")


def test_a_result_the_disk_refuses_is_told_and_the_order_can_be_repeated(desk: Desk) -> None:
    begin(desk, "c1")
    deny(desk.database, "command", "UPDATE")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]
    assert desk.orders.alive
    permit(desk.database, "command", "UPDATE")
    wait(lambda: not desk.orders.busy, "rest")
    begin(desk, "c1")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]


def test_a_worker_that_meets_a_full_disk_fails_its_order_only(desk: Desk) -> None:
    desk.worker.error = StorageError("no space left")
    begin(desk, "c1")
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason, reply.detail) == ("error", "storage", "no space left")
    desk.worker.error = None
    begin(desk, "c2")


def test_a_stored_reply_that_cannot_be_read_counts_as_none(desk: Desk) -> None:
    desk.order("c1", IDENTIFY)
    with desk.database.transaction():
        desk.database.execute("UPDATE command SET reply = '{'")
    assert statuses(desk.order("c1", IDENTIFY)) == ["ok"]


@settings(max_examples=12, deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("order"), st.sampled_from(["c1", "c2", "c3"])),
            st.tuples(st.just("finish"), st.just("")),
            st.tuples(st.just("restart"), st.just("")),
        ),
        max_size=16,
    )
)
def test_any_order_of_repeats_ends_and_restarts_carries_each_out_at_most_once(script: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        desk.orders.start()
        answers: dict[str, set[str]] = {}
        boots = 1
        for step, command_id in script:
            if step == "order":
                desk.orders.receive(desk.payload(command_id), retained=False)
            elif step == "finish" and desk.orders.busy:
                desk.worker.finish_one()
            elif step == "restart":
                boots += 1
                desk.restart(f"boot{boots}")
            note(desk, answers)
        desk.close()
        note(desk, answers)
        assert all(len(known) <= 1 for known in answers.values()), answers
        assert len(set(desk.worker.finished)) == len(desk.worker.finished)


def note(desk: Desk, answers: dict[str, set[str]]) -> None:
    for reply in desk.replies():
        assert reply.status in ("accepted", "ok", "error"), reply
        if reply.status != "accepted":
            final = reply.model_dump_json(exclude={"boot_id"})
            answers.setdefault(reply.command_id, set()).add(final)


def test_over_a_real_broker_a_retained_command_is_told_from_a_sent_one(mosquitto: Mosquitto, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    broker = BrokerSettings(mosquitto.host, mosquitto.port)
    heard: queue.Queue[SessionEvent] = queue.Queue(100)
    bridge = MqttSession(
        broker,
        "bridge",
        clean_start=True,
        session_expiry_s=0,
        inbox=heard,
        subscriptions=[Subscription(TOPICS.reply(GATEWAY))],
    )
    bridge.start()
    first(heard, Connected)
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
    bridge.stop(2.0)
    desk.database.close()


Kind = TypeVar("Kind", bound=SessionEvent)


def first(events: "queue.Queue[SessionEvent]", kind: type[Kind]) -> Kind:
    """The next event of this kind."""
    while True:
        event = events.get(timeout=WAIT_S)
        if isinstance(event, kind):
            return event
