import json
import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import StorageError
from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent
from edge_agent.runtime.inbox import Inbox, Receivers
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import Ack, BridgePresence
from edge_agent.wire.messages.ack import ACK_CAP_BYTES
from tests.runtime.desk import EVALUATE, FLEET, GATEWAY, TOPICS, Desk, wait

OTHER = "line2"
DIGEST = "d" * 64
ROWS = [
    TOPICS.command(GATEWAY),
    TOPICS.ack(GATEWAY),
    TOPICS.release,
    TOPICS.bridge,
    TOPICS.event(GATEWAY),
    TOPICS.chunk(DIGEST, 0),
]
ACK = Ack(bridge_boot_id="b1", epoch="e1", committed=[(1, 4)])
BRIDGE = BridgePresence(boot_id="b1", online=True)


@dataclass
class Running:
    """A running inbox before real orders; the other receivers only keep what came."""

    desk: Desk
    events: "queue.Queue[SessionEvent]" = field(default_factory=lambda: queue.Queue(10_000))
    connections: list[int] = field(default_factory=list)
    disconnections: list[Disconnected] = field(default_factory=list)
    publications: list[Published] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    releases: list[bytes] = field(default_factory=list)
    bridges: list[BridgePresence] = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self) -> None:
        receivers = Receivers(
            connected=self.connections.append,
            disconnected=self.disconnections.append,
            published=self.publications.append,
            command=lambda payload, retained: self.desk.orders.receive(payload, retained=retained),
            ack=self._take_ack,
            release=self.releases.append,
            bridge=self.bridges.append,
        )
        self.inbox = Inbox(FLEET, self.events, receivers)
        self.inbox.start()

    def take(self, *events: SessionEvent) -> None:
        """Pass events through, and wait until the last has been."""
        number = len(self.connections) + 1
        for event in (*events, Connected(number, session_present=False)):
            self.events.put(event)
        wait(lambda: len(self.connections) >= number or not self.inbox.alive, "the inbox")

    def receive(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.take(Received(topic, payload, retain))

    def close(self) -> None:
        self.inbox.stop(5.0)
        assert not self.inbox.alive
        self.desk.close()

    def _take_ack(self, ack: Ack) -> None:
        if self.error is not None:
            raise self.error
        self.acks.append(ack)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("inbox")
    one = Running(Desk(folder))
    yield one
    one.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Running]:
    one = Running(Desk(tmp_path))
    yield one
    one.close()


def json_values() -> st.SearchStrategy[object]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
    names = st.sampled_from(["schema", "key_id", "signature", "body", "epoch", "committed", "grants", "online"])
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6), max_leaves=12
    )


payloads = st.one_of(
    st.binary(max_size=200),
    json_values().map(lambda value: json.dumps(value).encode()),
    st.tuples(st.sampled_from([encode(ACK), encode(BRIDGE)]), st.integers(0, 200), st.binary(max_size=3)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] :]
    ),
)
topics = st.one_of(
    st.sampled_from([*ROWS, *[row.replace(FLEET, OTHER) for row in ROWS]]),
    st.text(max_size=40),
    st.lists(st.sampled_from(["clma", "1", FLEET, "up", "down", "all", GATEWAY, "blob", "ack", "", "#"])).map("/".join),
)


@settings(max_examples=100, deadline=None)
@given(
    messages=st.lists(st.tuples(topics, payloads, st.booleans()).map(lambda m: Received(*m)), min_size=1, max_size=6)
)
def test_no_bytes_on_any_topic_end_it(running: Running, messages: list[Received]) -> None:
    running.take(*messages)
    assert running.inbox.alive, running.inbox.failure
    assert running.desk.database.query("SELECT count(*) FROM command") == [(0,)]
    assert set(running.inbox.malformed) <= {"topic", "Ack", "BridgePresence"}
    assert set(running.desk.orders.refused) <= {"retained", "unsigned", "malformed", "misaddressed"}


def test_each_event_goes_to_its_owner(fresh: Running) -> None:
    lost = Disconnected("gone", 1.0)
    sent = Published(3, ok=True, reason="Success")
    fresh.take(lost, sent)
    fresh.receive(TOPICS.ack(GATEWAY), encode(ACK))
    fresh.receive(TOPICS.release, b"a map", retain=True)
    fresh.receive(TOPICS.bridge, encode(BRIDGE), retain=True)
    fresh.receive(TOPICS.command(GATEWAY), fresh.desk.payload("c1", EVALUATE))
    assert (fresh.disconnections, fresh.publications) == ([lost], [sent])
    assert (fresh.acks, fresh.releases, fresh.bridges) == ([ACK], [b"a map"], [BRIDGE])
    assert [reply.status for reply in fresh.desk.replies(1)] == ["accepted"]
    assert fresh.inbox.malformed == {}


@pytest.mark.parametrize("row", [*ROWS[:4]])
def test_another_fleets_messages_are_dropped_and_counted(fresh: Running, row: str) -> None:
    payload = {TOPICS.ack(GATEWAY): encode(ACK), TOPICS.bridge: encode(BRIDGE)}.get(
        row, fresh.desk.payload("c1", EVALUATE)
    )
    fresh.receive(row.replace(FLEET, OTHER), payload)
    assert fresh.inbox.malformed == {"topic": 1}
    assert (fresh.acks, fresh.releases, fresh.bridges, fresh.desk.replies()) == ([], [], [], [])
    assert fresh.desk.database.query("SELECT * FROM command") == []


@pytest.mark.parametrize("row", ROWS[4:])
def test_rows_that_are_not_for_a_gateway_are_dropped_and_counted(fresh: Running, row: str) -> None:
    fresh.receive(row, b"{}")
    assert fresh.inbox.malformed == {"topic": 1}


def test_a_message_over_its_cap_is_dropped_before_it_is_parsed(fresh: Running) -> None:
    padded = encode(ACK)[:-1] + b" " * ACK_CAP_BYTES + b"}"
    fresh.receive(TOPICS.ack(GATEWAY), padded)
    assert (fresh.acks, fresh.inbox.malformed) == ([], {"Ack": 1})


def test_a_retained_command_reaches_the_orders_as_retained(fresh: Running) -> None:
    fresh.receive(TOPICS.command(GATEWAY), fresh.desk.payload("c1", EVALUATE), retain=True)
    assert fresh.desk.orders.refused == {"retained": 1}


def test_what_the_disk_refuses_is_counted_and_the_next_is_taken(fresh: Running) -> None:
    fresh.error = StorageError("no space left")
    fresh.receive(TOPICS.ack(GATEWAY), encode(ACK))
    fresh.error = None
    fresh.receive(TOPICS.ack(GATEWAY), encode(ACK))
    assert (fresh.inbox.not_stored, fresh.acks) == (1, [ACK])


def test_a_defect_in_a_receiver_ends_it_for_the_supervisor_to_see(fresh: Running) -> None:
    fresh.error = AssertionError("a defect")
    fresh.receive(TOPICS.ack(GATEWAY), encode(ACK))
    assert not fresh.inbox.alive
    assert isinstance(fresh.inbox.failure, AssertionError)
