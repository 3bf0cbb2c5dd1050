"""Sessions with a real broker: messages, resumption, wills, caps."""

import time
from pathlib import Path

import pytest

from edge_agent.link.events import Connected, Disconnected, Published, Received, Subscription, Will
from edge_agent.link.outgoing import PayloadTooLarge
from server_bridge.demo.broker import Mosquitto, free_port
from tests.broker import new_mosquitto
from tests.link.session_peer import Cut, MakePeer


def test_a_message_goes_from_one_session_to_another(mosquitto: Mosquitto, peer: MakePeer) -> None:
    receiver = peer(mosquitto.port, "b", "t/#")
    receiver.listening()
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
    again = receiver.listening()
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
    watcher.listening()
    proxy = Cut(mosquitto.port)
    one = peer(proxy.port, "a", will=lambda connection: Will("will", b"gone %d" % connection))
    for _ in range(3):
        connection = one.wait(Connected).connection
        proxy.cut()
        assert watcher.payload(b"gone %d" % connection).payload
    proxy.close()


def test_an_orderly_stop_leaves_no_will_and_sends_what_is_queued(mosquitto: Mosquitto, peer: MakePeer) -> None:
    watcher = peer(mosquitto.port, "w", "t", "will")
    watcher.listening()
    one = peer(mosquitto.port, "a", will=lambda connection: Will("will", b"gone"))
    for number in range(200):
        one.session.publish("t", b"%d" % number)
    assert one.session.stop(60)
    watcher.payload(b"199")
    time.sleep(0.2)
    assert all(event.topic == "t" for event in watcher.seen if isinstance(event, Received))


def test_two_clients_with_one_id_do_not_storm(mosquitto: Mosquitto, peer: MakePeer) -> None:
    both = [peer(mosquitto.port, "same"), peer(mosquitto.port, "same")]
    until_s = time.monotonic() + 60
    alarms: list[Disconnected] = []
    while not alarms or sum(one.session.connected for one in both) != 1:
        assert time.monotonic() < until_s, alarms
        time.sleep(0.05)
        events = [event for one in both for event in list(one.inbox.queue)]
        alarms = [event for event in events if isinstance(event, Disconnected) and event.taken_over]
    assert alarms[0].retry_in_s >= 60
    connections = [one.session.connection for one in both]
    time.sleep(1)
    assert [one.session.connection for one in both] == connections
    assert sum(connections) <= 2 * 4 + 1
    assert sum(one.session.connected for one in both) == 1
