import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.errors import WireError
from edge_agent.wire.table import TOPIC_TABLE, TopicRow
from edge_agent.wire.topics import MAX_CHUNK_INDEX, FleetTopics, ParsedTopic, TopicKind, parse_topic
from tests.wire.strategies import digests

identifiers = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
indices = st.integers(0, MAX_CHUNK_INDEX)
D = "ab" * 32


@given(fleet=identifiers, gateway=identifiers, digest=digests, index=indices)
def test_every_topic_is_read_as_it_was_made(fleet: str, gateway: str, digest: str, index: int) -> None:
    topics = FleetTopics(fleet)
    made = {
        topics.presence(gateway): ParsedTopic(fleet, TopicKind.PRESENCE, gateway),
        topics.state(gateway): ParsedTopic(fleet, TopicKind.STATE, gateway),
        topics.event(gateway): ParsedTopic(fleet, TopicKind.EVENT, gateway),
        topics.reply(gateway): ParsedTopic(fleet, TopicKind.REPLY, gateway),
        topics.command(gateway): ParsedTopic(fleet, TopicKind.COMMAND, gateway),
        topics.ack(gateway): ParsedTopic(fleet, TopicKind.ACK, gateway),
        topics.upload_chunk(gateway, digest, index): ParsedTopic(fleet, TopicKind.UPLOAD_CHUNK, gateway, digest, index),
        topics.chunk(digest, index): ParsedTopic(fleet, TopicKind.CHUNK, None, digest, index),
        topics.release: ParsedTopic(fleet, TopicKind.RELEASE),
        topics.bridge: ParsedTopic(fleet, TopicKind.BRIDGE),
    }
    assert {topic: parse_topic(topic) for topic in made} == made
    assert {parsed.kind for parsed in made.values()} == set(TopicKind)


@pytest.mark.parametrize("row", TOPIC_TABLE, ids=[row.kind.value for row in TOPIC_TABLE])
def test_the_table_says_what_the_topics_are(row: TopicRow) -> None:
    topic = f"clma/1/f/{row.topic.format(gateway='g', digest=D, index=3)}"
    assert parse_topic(topic).kind is row.kind
    assert topic.split("/")[3] in {"gateway": ("up",), "bridge": ("down", "all")}[row.writer]


def test_the_table_has_every_kind_once() -> None:
    assert [row.kind for row in TOPIC_TABLE] == list(TopicKind)


@given(
    st.text() | st.lists(st.sampled_from(["clma", "1", "f", "up", "down", "all", "g", "blob", D, "0"])).map("/".join)
)
def test_any_text_is_a_topic_or_a_wire_error(text: str) -> None:
    try:
        parsed = parse_topic(text)
    except WireError:
        return
    assert parsed.fleet in text


@pytest.mark.parametrize(
    "topic",
    [
        "clma/1/f",
        "clma/1/f/up/g",
        "clma/1/f/up/g/presence/x",
        "clma/1/f/up//presence",
        "clma/1/f/up/g g/presence",
        "clma/1/f/up/g\n/presence",
        "clma/1/f/up/+/presence",
        "clma/1/f/down/g/presence",
        "clma/1/f/all/presence",
        "clma/2/f/all/release",
        "clma/1/f/all/release/",
        f"clma/1/f/all/blob/{D}/01",
        f"clma/1/f/all/blob/{D}/-1",
        f"clma/1/f/all/blob/{D}/65536",
        f"clma/1/f/all/blob/{D}/१",
        f"clma/1/f/all/blob/{D.upper()}/0",
        f"clma/1/f/all/blob/{D[:-1]}/0",
        "clma/1/" + "f" * 65 + "/all/release",
    ],
)
def test_what_is_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(WireError):
        parse_topic(topic)


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a b", "a\n", "ä", "x" * 65])
def test_no_topic_is_made_for_a_name_that_is_no_identifier(name: str) -> None:
    with pytest.raises(WireError):
        FleetTopics(name)
    with pytest.raises(WireError):
        FleetTopics("f").command(name)
    with pytest.raises(WireError):
        FleetTopics("f").presence(name)
    with pytest.raises(WireError):
        FleetTopics("f").chunk(name, 0)
