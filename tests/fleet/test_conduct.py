"""Quotas, stray retained messages, and gateways that the bridge stops listening to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.link.events import Received
from edge_agent.wire.messages import ErrorEvent
from server_bridge.fleet.conduct import Conduct, ConductLimits, Verdict
from server_bridge.fleet.registry import ignore, readmit
from server_bridge.fleet.transport import Order
from tests.fleet.desk import TOPICS, Desk
from tests.fleet.gateway import presence, train
from tests.fleet.test_ingest import acked, event, flag

BODY = ErrorEvent(place="p", problem="x")
LIMITS = ConductLimits()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


def strays(count: int, gateway: str = "gw1") -> list[Received]:
    return [Received(f"clma/1/line1/up/{gateway}/blob/x{n}/junk", b"x", True) for n in range(count)]


def test_each_limit_has_its_verdict_and_a_new_minute_forgives_what_is_below_the_second() -> None:
    limits = ConductLimits(bytes_quota=10, messages_quota=2, bytes_most=20, messages_most=4, strays_most=1)
    conduct = Conduct(limits)
    verdicts = [conduct.judge("a", 1, 0.0) for _ in range(5)]
    assert verdicts == [Verdict.FINE, Verdict.FINE, Verdict.OVER_QUOTA, Verdict.OVER_QUOTA, Verdict.IGNORE]
    assert conduct.judge("a", 1, 60.0) is Verdict.FINE
    assert conduct.judge("b", 11, 60.0) is Verdict.OVER_QUOTA
    assert conduct.judge("b", 10, 60.0) is Verdict.IGNORE
    assert [conduct.judge("c", 1, 60.0, stray=True) for _ in range(2)] == [Verdict.FINE, Verdict.IGNORE]


def test_ten_thousand_events_in_a_minute_end_in_being_ignored_and_named(desk: Desk) -> None:
    desk.ingest.handle([event(flag(1), 0), event(flag(2), 0, gateway="gw2")])
    for start in range(1, 10_001, 250):
        desk.ingest.handle([event(BODY, sequence) for sequence in range(start, start + 250)])
    assert desk.dropped()["gw1", "quota"] + desk.dropped()["gw1", "ignored"] == 10_001 - LIMITS.messages_quota
    assert acked(desk) == set(range(LIMITS.messages_quota))
    (decision,) = [each for each in desk.store.decisions.recent() if each.kind == "gateway"]
    assert decision.reason == "ignored"
    assert decision.detail.startswith("gw1: 6001 messages")
    assert [stored.gateway for stored in desk.store.flags.open()] == ["gw2"], "its open flag is set aside"
    assert [gateway.id for gateway in desk.fleet.gateways()] == ["gw2"]


def test_a_gateway_within_the_second_limit_is_heard_again_in_the_next_minute(desk: Desk) -> None:
    desk.ingest.handle([event(BODY, sequence) for sequence in range(LIMITS.messages_quota + 500)])
    desk.clock.now_s += 60
    desk.ingest.handle([event(BODY, LIMITS.messages_quota)])
    assert LIMITS.messages_quota in acked(desk)


def test_stray_retained_messages_are_cleared_wherever_they_are(desk: Desk) -> None:
    digest = "a" * 64
    topics = [
        f"clma/1/line1/up/gw1/{rest}" for rest in ("event", "reply", "junk", f"blob/{digest}/0", "blob/x/y", "a/b/c/d")
    ] + ["clma/1/elsewhere/up/gw1/state", "clma/1/line1/up/stranger/state", f"clma/1/line1/up/gw1/{'x' * 400}"]
    desk.ingest.handle([Received(topic, b"x", True) for topic in topics])
    assert desk.session.sent == [(topic, b"", True) for topic in topics]


def test_what_another_fleets_gateways_retain_is_not_ours_to_clear(desk: Desk) -> None:
    desk.ingest.handle([Received("clma/1/elsewhere/up/gw9/presence", b"x", True)])
    assert desk.session.sent == []


def test_three_thousand_retained_messages_are_all_cleared_and_their_gateway_ignored(desk: Desk) -> None:
    for message in (strays(3000)[start : start + 256] for start in range(0, 3000, 256)):
        desk.ingest.handle(message)
    assert len(desk.session.sent) == 3000
    assert desk.dropped() == {("gw1", "topic"): LIMITS.strays_most + 1, ("gw1", "ignored"): 2799}


def test_ungranted_chunks_count_against_their_gateway(desk: Desk) -> None:
    topic = TOPICS.upload_chunk("gw1", "a" * 64, 0)
    desk.ingest.handle([Received(topic, bytes(128 * 1024), False)] * 300)
    assert desk.dropped()["gw1", "chunk"] == 300
    assert [each.reason for each in desk.store.decisions.recent()] == ["ignored"]


def test_an_ignored_gateway_is_silent_to_the_bridge_until_readmitted(desk: Desk) -> None:
    desk.ingest.handle([presence("gw1"), presence("gw2"), event(flag(1), 0)])
    assert ignore(desk.store, "gw1", "by an operator", 1.0)
    assert not ignore(desk.store, "gw1", "twice", 1.0)
    desk.clock.now_s += 2
    desk.ingest.handle([event(flag(2), 1)])
    assert desk.store.flags.open() == []
    assert acked(desk) == {0}
    assert readmit(desk.store, "gw1", 2.0)
    desk.clock.now_s += 2
    desk.ingest.handle([event(flag(2), 1)])
    assert [stored.event.firing for stored in desk.store.flags.open()] == [2]
    assert [each.reason for each in desk.store.decisions.recent()] == ["ignored", "readmitted"]


def test_an_order_to_a_gateway_that_is_ignored_ends_at_once(desk: Desk) -> None:
    desk.ingest.handle([presence("gw1")])
    ignore(desk.store, "gw1", "by an operator", 1.0)
    desk.clock.now_s += 2
    orders = [Order(gateway="gw1", command_id="c1", action=train(), duration_s=60.0)]
    (outcome,) = desk.fleet.exchange(orders, timeout_s=60.0, cancelled=lambda: False)
    assert outcome.failure == "ignored"


def test_a_clear_that_found_no_room_is_counted(desk: Desk) -> None:
    desk.session.full = True
    desk.ingest.handle(strays(3))
    assert desk.fleet is not None
    assert desk.ingest._post.missed_clears == 3
