"""Who may do what on the production broker: real certificates, real mosquitto, the configuration of deploy/.

A denied subscription is granted and filtered, so what counts is what arrives. A denied publication is PUBACK 135.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.link.events import Connected, Disconnected, Received
from edge_agent.link.settings import TlsSettings
from edge_agent.wire.rights import bridge_identities, bridge_rights, gateway_identities, gateway_rights
from edge_agent.wire.topics import FleetTopics
from tests.security.site import FLEET, GATEWAYS, OTHER_FLEET, Site, Visitor, die_with_will

pytestmark = pytest.mark.mosquitto

TOPICS = FleetTopics(FLEET)
ROOT = TOPICS.root
DIGEST = "ab" * 32
PAIRS = [("gw1", "gw2"), ("gw2", "gw1")]
UP = ("presence", "state", "event", "reply")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = Site(tmp_path_factory.mktemp("site"))
    yield place
    place.close()


@pytest.fixture
def visitors(site: Site) -> Iterator[list[Visitor]]:
    opened: list[Visitor] = []
    yield opened
    for one in opened:
        one.close()


def _enter(site: Site, visitors: list[Visitor], name: str, *filters: str, client_id: str = "") -> Visitor:
    one = site.visitor(name, *filters, client_id=client_id)
    visitors.append(one)
    one.wait(Connected)
    return one


def _every_topic() -> set[str]:
    """One of each row, of both gateways, of both fleets."""
    rows = set()
    for fleet in (FLEET, OTHER_FLEET):
        topics = FleetTopics(fleet)
        rows |= {topics.release, topics.bridge, topics.chunk(DIGEST, 0), f"{topics.root}/all/other", topics.root}
        for gateway in (*GATEWAYS, "gw9"):
            rows |= {f"{topics.root}/up/{gateway}/{row}" for row in UP}
            rows |= {topics.upload_chunk(gateway, DIGEST, 0), topics.command(gateway), topics.ack(gateway)}
            rows |= {f"{topics.root}/up/{name}/event" for name in gateway_identities(gateway)[1:]}
    return rows | {"elsewhere", "$SYS/broker/version", "$share/g/" + ROOT}


def _may(name: str, access: str) -> set[str]:
    rights = [*bridge_rights(FLEET), *(right for gateway in GATEWAYS for right in gateway_rights(FLEET, gateway))]
    filters = [right.topic for right in rights if right.identity == name and right.access == access]
    return {topic for topic in _every_topic() if any(_covers(one, topic) for one in filters)}


def _covers(pattern: str, topic: str) -> bool:
    wanted, given = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        return given[: len(wanted) - 1] == wanted[:-1]
    return len(wanted) == len(given) and all(a in ("+", b) for a, b in zip(wanted, given, strict=True))


IDENTITIES = [name for gateway in GATEWAYS for name in gateway_identities(gateway)] + bridge_identities(FLEET)


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("retain", [False, True])
def test_publish(site: Site, visitors: list[Visitor], name: str, retain: bool) -> None:
    """Every identity on every topic: what its rights cover goes through, all else is refused and reaches nobody."""
    witness = site.witness()
    visitors.append(witness)
    one = _enter(site, visitors, name)
    allowed = _may(name, "write")
    topics = {topic for topic in _every_topic() if not topic.startswith("$share")}
    for topic in sorted(topics):
        (one.ok if topic in allowed else one.denied)(topic, name.encode(), retain=retain)
    for topic in allowed if retain else ():
        one.ok(topic, b"", retain=True)
    witness.ok("sync/end", b"")
    witness.heard("sync/end")
    heard = witness.topics() - {"sync/end", "sync/witness"}
    assert heard == allowed


@pytest.mark.parametrize("name", IDENTITIES)
def test_subscribe(site: Site, visitors: list[Visitor], name: str) -> None:
    """Whatever it asks for, by name, by wildcard or as a share, it hears what its rights cover and no more."""
    asked = ("#", "+/#", f"{ROOT}/#", "clma/1/+/down/#", "$share/thieves/#", f"$share/thieves/{ROOT}/up/#", "$SYS/#")
    writer = site.witness()
    visitors.append(writer)
    topics = {topic for topic in _every_topic() if not topic.startswith("$")}
    for topic in topics:
        writer.ok(topic, b"kept", retain=True)
    one = _enter(site, visitors, name, *asked, *topics)
    for topic in topics:
        writer.ok(topic, b"live")
    for topic in topics:
        writer.ok(topic, b"", retain=True)
    allowed = _may(name, "read")
    if allowed:
        last = sorted(allowed)[0]
        writer.ok(last, b"end")
        one.wait(Received, lambda event: event == Received(last, b"end", False))
    else:
        _settled(site, visitors)
    assert one.topics() == allowed


def _settled(site: Site, visitors: list[Visitor]) -> None:
    """The broker has passed on everything sent so far: a later message on another connection has come through."""
    bridge = _enter(site, visitors, f"bridge-{FLEET}", TOPICS.up_filter)
    gateway = _enter(site, visitors, "gw1")
    gateway.ok(TOPICS.event("gw1"), b"settled")
    bridge.heard(TOPICS.event("gw1"))


@pytest.mark.parametrize(("attacker", "victim"), PAIRS)
def test_will(site: Site, visitors: list[Visitor], attacker: str, victim: str) -> None:
    witness = site.witness()
    visitors.append(witness)
    settings = site.settings(site.of(attacker))
    forbidden = [TOPICS.presence(victim), TOPICS.release, TOPICS.command(victim), FleetTopics("other").bridge]
    for topic in forbidden:
        die_with_will(settings, attacker, topic)
    die_with_will(site.settings(site.of(f"{attacker}.up")), f"{attacker}.up", TOPICS.presence(attacker))
    assert die_with_will(settings, attacker, TOPICS.presence(attacker))
    assert witness.heard(TOPICS.presence(attacker)) == b"will"
    assert witness.topics().isdisjoint(forbidden)
    witness.ok(TOPICS.presence(attacker), b"", retain=True)


@pytest.mark.parametrize(("attacker", "victim"), PAIRS)
@pytest.mark.parametrize("stolen", ["{}", "{}.down", "{}.up", "bridge-toy", "bridge-toy.release"])
def test_client_id_theft(site: Site, visitors: list[Visitor], attacker: str, victim: str, stolen: str) -> None:
    """Who asks for another's client id stays who the certificate says, and evicts nobody."""
    name = stolen.format(victim)
    owner = _enter(site, visitors, name)
    thief = _enter(site, visitors, attacker, TOPICS.down_filter(victim), client_id=name)
    thief.ok(TOPICS.event(attacker), b"as myself")
    thief.denied(TOPICS.event(victim), b"as the victim")
    _settled_down(site, visitors, victim)
    assert thief.topics() == set()
    owner.outcome(TOPICS.event(victim), b"still here")
    assert not any(isinstance(event, Disconnected) for event in owner.seen)


def _settled_down(site: Site, visitors: list[Visitor], victim: str) -> None:
    writer = site.witness()
    visitors.append(writer)
    writer.ok(TOPICS.command(victim), b"secret")
    writer.heard(TOPICS.command(victim))


@pytest.mark.parametrize(("gateway", "other"), PAIRS)
def test_certificates_that_do_not_count(site: Site, visitors: list[Visitor], gateway: str, other: str) -> None:
    bad = {
        "expired": site.pair(gateway, site.authority, days_ago=10),
        "unknown authority": site.pair(gateway, site.stranger),
        "not yet valid": site.pair(gateway, site.authority, days_ago=-10),
    }
    for tls in bad.values():
        visitor = Visitor(site.settings(tls), gateway)
        visitors.append(visitor)
        visitor.refused()
    for settings in (site.settings(None), site.settings(TlsSettings(site.tls / "ca.crt"))):
        visitor = Visitor(settings, gateway)
        visitors.append(visitor)
        visitor.refused()
    _enter(site, visitors, gateway)
    _enter(site, visitors, other)


def test_a_certificate_without_rights_gets_none(site: Site, visitors: list[Visitor]) -> None:
    """Signed by the authority but not in the list, as a gateway that was revoked, or the broker's own."""
    visitor = Visitor(site.settings(site.pair("gw9", site.authority)), "gw9", "#")
    visitors.append(visitor)
    visitor.wait(Connected)
    visitor.denied(TOPICS.event("gw9"), b"x")
    visitor.denied(TOPICS.event("gw1"), b"x")
    _settled(site, visitors)
    assert visitor.topics() == set()


def test_the_host_must_be_the_certificates(site: Site, visitors: list[Visitor]) -> None:
    other = Visitor(site.settings(site.of("gw1"), host="127.0.0.2"), "gw1")
    visitors.append(other)
    other.refused()
    named = Visitor(site.settings(site.of("gw1"), host="localhost"), "gw1")
    visitors.append(named)
    named.wait(Connected)


@pytest.mark.parametrize(("gone", "stays"), PAIRS)
def test_revoked(tmp_path: Path, gone: str, stays: str) -> None:
    """After a reload the revoked gateway has no rights on the connection it still has, and gets no other."""
    site = Site(tmp_path)
    visitors: list[Visitor] = []
    try:
        kept = _enter(site, visitors, gone, TOPICS.down_filter(gone))
        kept.ok(TOPICS.event(gone), b"before")
        good = _enter(site, visitors, stays)
        revoked = site.authority.revoke(gone)
        assert [one.name for one in revoked] == sorted(gateway_identities(gone))
        site.broker.reload()
        _until_denied(kept, TOPICS.event(gone))
        for name in gateway_identities(gone):
            visitor = site.visitor(name)
            visitors.append(visitor)
            visitor.refused()
        good.ok(TOPICS.event(stays), b"x")
        good.close()
        visitors.remove(good)
        _enter(site, visitors, stays)
        fresh = site.authority.gateway(gone)
        site.authority.renew_broker_files()
        site.broker.restart()
        (site.tls / f"{gone}.crt").write_bytes(fresh[f"{gone}.crt"])
        (site.tls / f"{gone}.key").write_bytes(fresh[f"{gone}.key"])
        for visitor in visitors:
            visitor.close()
        visitors.clear()
        again = _enter(site, visitors, gone)
        again.ok(TOPICS.event(gone), b"a new certificate")
    finally:
        for visitor in visitors:
            visitor.close()
        site.close()


def _until_denied(visitor: Visitor, topic: str) -> None:
    until_s = time.monotonic() + 60
    while visitor.outcome(topic, b"after").ok:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    visitor.denied(topic, b"after")
