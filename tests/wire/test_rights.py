from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.rights import (
    RIGHTS,
    bridge_identities,
    bridge_rights,
    gateway_identities,
    gateway_rights,
    may_be_gateway,
)
from edge_agent.wire.topics import FleetTopics, TopicKind, parse_topic
from server_bridge.fleet.station import client_id

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


def _covers(pattern: str, topic: str) -> bool:
    wanted, given_ = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        return given_[: len(wanted) - 1] == wanted[:-1]
    return len(wanted) == len(given_) and all(a in ("+", b) for a, b in zip(wanted, given_, strict=True))


@given(fleet=NAMES, gateway=NAMES, other=NAMES)
def test_a_gateway_touches_its_own_topics_only(fleet: str, gateway: str, other: str) -> None:
    topics = FleetTopics(fleet)
    rights = gateway_rights(fleet, gateway)
    assert {right.identity for right in rights} <= set(gateway_identities(gateway))
    for right in rights:
        assert right.topic.startswith(f"{topics.root}/")
        assert right.access == "read" or f"/up/{gateway}/" in right.topic
    if other != gateway:
        foreign = [topics.event(other), topics.presence(other), topics.command(other), topics.ack(other)]
        assert not any(_covers(right.topic, topic) for right in rights for topic in foreign)


def test_every_written_right_is_a_topic_of_the_contract() -> None:
    """What a gateway may write, the bridge can read; each row of the table has a writer."""
    digest = "a" * 64
    written = set()
    for right in [*gateway_rights("f", "g"), *bridge_rights("f")]:
        if right.access == "write" and not right.topic.endswith("#"):
            parsed = parse_topic(right.topic.replace("+/+", f"{digest}/7"))
            assert parsed.gateway in (None, "g")
            written.add(parsed.kind)
    assert written == set(TopicKind) - {TopicKind.COMMAND, TopicKind.ACK}
    assert [right.topic for right in RIGHTS if right.topic.endswith("#") and right.access == "write"] == [
        "up/#",
        "down/#",
    ]


def test_names_of_connections() -> None:
    assert gateway_identities("gw1") == ["gw1", "gw1.down", "gw1.base", "gw1.up", "gw1.check"]
    assert bridge_identities("toy") == ["bridge-toy", "bridge-toy.release", "bridge-toy.release.readback"]
    assert bridge_identities("toy")[0] == client_id("toy")


def test_no_gateway_can_be_taken_for_a_bridge() -> None:
    assert may_be_gateway("gw-1_A")
    assert not may_be_gateway("bridge-toy")
    assert not may_be_gateway("bridge-")
    assert not may_be_gateway("gw1.up")
    assert may_be_gateway("bridge")
