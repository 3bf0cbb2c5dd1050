import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_agent.link.events import Received
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import (
    BlobMissingEvent,
    ClockTrust,
    CountsBucket,
    CountsEvent,
    ErrorEvent,
    Event,
    EventBody,
    FlagEvent,
    Presence,
    State,
    TrustedVersions,
)
from tests.fleet.desk import BRIDGE_BOOT, BUNDLE, TOPICS, Desk

WEIGHTS = "e" * 64


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


def flag(number: int) -> FlagEvent:
    return FlagEvent(
        flag_id=sha256_hex(f"flag {number}".encode()),
        monitor="loss-rise",
        firing=number,
        bundle=BUNDLE,
        weights=WEIGHTS,
        weights_version=1,
        cohort="root",
        first_drifted_sample="s1",
        first_drifted_time_s=1.0,
        statistic=2.0,
        threshold=1.0,
        trainable_samples=10,
    )


def event(body: EventBody, sequence: int, *, low: int = 0, epoch: str = "e1", gateway: str = "gw1") -> Received:
    message = Event(gateway=gateway, epoch=epoch, sequence=sequence, low=low, time_s=1.0, body=body)
    return Received(TOPICS.event(gateway), encode(message), retain=False)


def acked(desk: Desk, epoch: str = "e1", gateway: str = "gw1") -> set[int]:
    ranges = [pair for ack in desk.session.acks(gateway) if ack.epoch == epoch for pair in ack.committed]
    return {sequence for first, last in ranges for sequence in range(first, last + 1)}


def test_an_event_is_stored_once_and_acknowledged_each_time(desk: Desk) -> None:
    for _ in range(3):
        desk.ingest.handle([event(flag(1), 0), event(flag(1), 0)])
    assert len(desk.store.events.recent()) == 1
    assert len(desk.store.flags.open()) == 1
    assert [ack.committed for ack in desk.session.acks("gw1")] == [[(0, 0)]] * 3
    assert desk.session.acks("gw1")[0].bridge_boot_id == BRIDGE_BOOT


def test_the_same_flag_in_another_epoch_counts_once(desk: Desk) -> None:
    desk.ingest.handle([event(flag(1), 0), event(flag(1), 0, epoch="e2")])
    assert len(desk.store.flags.all()) == 1
    assert acked(desk) == acked(desk, "e2") == {0}


def test_nothing_is_acknowledged_that_did_not_commit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(desk.store.flags, "record", fail)
    with pytest.raises(RuntimeError):
        desk.ingest.handle([event(ErrorEvent(place="p", problem="x"), 0), event(flag(1), 1)])
    assert desk.session.sent == []
    assert desk.store.events.recent() == []


def test_what_the_gateway_dropped_leaves_no_gap(desk: Desk) -> None:
    body = ErrorEvent(place="p", problem="x")
    message = Event(gateway="gw1", epoch="e1", sequence=9, low=2, dropped=[(3, 7)], time_s=1.0, body=body)
    desk.ingest.handle([event(body, 2), event(body, 8), Received(TOPICS.event("gw1"), encode(message), False)])
    mark = desk.store.events.mark("gw1", "e1")
    assert (mark.low, mark.above) == (10, ())


def test_a_full_gap_set_defers_instead_of_forgetting(desk: Desk) -> None:
    body = ErrorEvent(place="p", problem="x")
    desk.ingest.handle([event(body, sequence) for sequence in range(1, 1201, 2)])
    held = acked(desk)
    assert len(held) == 512
    assert {stored.id for stored in desk.store.events.recent(limit=5000)} == set(range(1, 513))
    desk.ingest.handle([event(body, sequence) for sequence in range(0, 1201, 2)])
    desk.ingest.handle([event(body, sequence) for sequence in range(1201)])
    assert acked(desk) == set(range(1201))
    assert len(desk.store.events.recent(limit=5000)) == 1201


def test_the_latest_counts_of_a_bucket_win_in_any_order(desk: Desk) -> None:
    def counts(labelled: int, bucket: int = 3) -> CountsEvent:
        buckets = [CountsBucket(bucket=bucket, labelled=labelled, right=1, loss_sum=0.5)]
        return CountsEvent(
            bundle=BUNDLE, weights=WEIGHTS, weights_version=1, cohort="root", bucket_s=10.0, buckets=buckets
        )

    desk.ingest.handle([event(counts(20), 5), event(counts(10), 4), event(counts(7, bucket=4), 6)])
    assert [(row.bucket, row.labelled, row.right) for row in desk.store.counts.all("gw1")] == [(3, 20, 1), (4, 7, 1)]


def test_strangers_and_other_fleets_are_dropped_and_counted(desk: Desk) -> None:
    body = ErrorEvent(place="p", problem="x")
    elsewhere = Received(TOPICS.event("gw1").replace("line1", "line2"), event(body, 0).payload, False)
    desk.ingest.handle([event(body, 0, gateway="stranger"), elsewhere])
    assert desk.store.events.recent() == []
    assert desk.session.sent == []
    assert desk.dropped() == {("unregistered", "gateway"): 1, ("gw1", "topic"): 1}


def test_a_gateway_registered_later_is_noticed(desk: Desk) -> None:
    from server_bridge.fleet.registry import register

    desk.ingest.handle([event(flag(1), 0, gateway="gw3")])
    register(desk.store.gateways, "gw3", 0.0)
    desk.clock.now_s += 2
    desk.ingest.handle([event(flag(1), 0, gateway="gw3")])
    assert [stored.gateway for stored in desk.store.flags.open()] == ["gw3"]


def test_a_gateway_speaks_for_itself_only(desk: Desk) -> None:
    desk.ingest.handle([Received(TOPICS.event("gw2"), event(flag(1), 0).payload, False)])
    assert desk.store.flags.open() == []
    assert desk.dropped() == {("gw2", "gateway"): 1}


def test_unexpected_retained_messages_are_cleared(desk: Desk) -> None:
    topic = TOPICS.event("gw1")
    desk.ingest.handle([Received(topic, event(flag(1), 0).payload, retain=True), Received(topic, b"", retain=True)])
    assert desk.session.sent == [(topic, b"", True)]
    assert desk.store.flags.open() == []


def test_a_flood_is_cut_at_the_quota_and_others_are_heard(desk: Desk) -> None:
    big = [event(ErrorEvent(place="p", problem="x" * 1900), sequence) for sequence in range(4500)]
    desk.ingest.handle([*big, event(flag(1), 0, gateway="gw2")])
    assert desk.dropped()["gw1", "quota"] > 0
    assert acked(desk, gateway="gw2") == {0}
    desk.clock.now_s += 61
    desk.ingest.handle(big[-1:])
    assert 4499 in acked(desk)


def test_a_missing_blob_is_published_again(desk: Desk) -> None:
    reference = BlobReference(digest="a" * 64, length=3, chunk_list="c" * 64)
    desk.ingest.handle([event(BlobMissingEvent(blob=reference), 0), event(BlobMissingEvent(blob=reference), 0)])
    assert desk.blobs.asked_again == ["a" * 64]


def test_state_and_presence_reach_the_gateway_list(desk: Desk) -> None:
    state = State(
        gateway="gw1",
        boot_id="boot",
        agent_version="0.1.0",
        bundle=BUNDLE,
        weights=WEIGHTS,
        weights_version=1,
        cohort="root",
        ota_state="idle",
        trusted=TrustedVersions(),
        clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=12,
        training=False,
    )
    presence = Presence(gateway="gw1", online=True, boot_id="boot", connection=1)
    desk.ingest.handle(
        [
            Received(TOPICS.state("gw1"), encode(state), True),
            Received(TOPICS.presence("gw1"), encode(presence), True),
        ]
    )
    first, second = desk.fleet.gateways()
    assert (first.id, first.online, first.state) == ("gw1", True, state)
    assert (second.id, second.online, second.state) == ("gw2", False, None)


@settings(max_examples=150, deadline=None)
@given(
    rest=st.sampled_from(["event", "reply", "state", "presence", f"blob/{'a' * 64}/0", "blob/x/0", "nothing"]),
    payload=st.binary(max_size=200) | st.text(max_size=200).map(str.encode),
)
def test_no_bytes_from_outside_end_the_ingest(shared_desk: Desk, rest: str, payload: bytes) -> None:
    shared_desk.ingest.handle([Received(f"clma/1/line1/up/gw1/{rest}", payload, False)])


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    yield made
    made.store.close()


class Delivery(RuleBasedStateMachine):
    """A gateway with an outbox, a network that loses, repeats and reorders, a bridge that restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.desk = Desk(Path(self.folder.name))
        self.next = 0
        self.held: dict[int, int] = {}
        self.wire: list[Received] = []
        self.dropped: set[int] = set()

    def _message(self, sequence: int) -> Received:
        low = min(self.held, default=self.next)
        message = Event(
            gateway="gw1",
            epoch="e1",
            sequence=sequence,
            low=low,
            dropped=sorted((number, number) for number in self.dropped if number >= low)[:64],
            time_s=0.0,
            body=flag(self.held[sequence]),
        )
        return Received(TOPICS.event("gw1"), encode(message), False)

    @rule()
    def new_flag(self) -> None:
        self.held[self.next] = self.next
        self.next += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self.wire.append(self._message(data.draw(st.sampled_from(sorted(self.held)))))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop_by_cap(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[sequence]
        self.dropped.add(sequence)

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        batch = data.draw(st.lists(st.sampled_from(self.wire), min_size=1, max_size=6))
        self.desk.ingest.handle(batch)

    @precondition(lambda self: self.wire)
    @rule()
    def lose(self) -> None:
        self.wire.pop(0)

    @rule()
    def acknowledgements_arrive(self) -> None:
        for sequence in acked(self.desk):
            self.held.pop(sequence, None)

    @rule()
    def bridge_restarts(self) -> None:
        self.acknowledgements_arrive()
        self.desk.store.close()
        self.desk = Desk(Path(self.folder.name))

    @invariant()
    def acknowledged_means_stored_and_nothing_is_stored_twice(self) -> None:
        stored = [row.event.firing for row in self.desk.store.flags.all()]
        logged = [row.id for row in self.desk.store.events.recent()]
        assert len(stored) == len(set(stored)) == len(logged)
        assert acked(self.desk) - self.dropped <= set(stored)

    def teardown(self) -> None:
        self.desk.ingest.handle([self._message(sequence) for sequence in sorted(self.held)])
        stored = {row.event.firing for row in self.desk.store.flags.all()}
        assert set(range(self.next)) - self.dropped <= stored
        self.desk.store.close()
        self.folder.cleanup()


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
