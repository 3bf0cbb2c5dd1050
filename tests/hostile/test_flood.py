"""Six hostile gateways at once, and the loop of the others closes."""

import json
import queue
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edge_agent.errors import WireError
from edge_agent.link.events import Connected, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.topics import FleetTopics, TopicKind, parse_topic
from server_bridge.demo.children import find_program
from server_bridge.fleet.conduct import WINDOW_S, ConductLimits
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import FLEET, ToyFleet
from tests.e2e.toy import Drift
from tests.hostile import intruders
from tests.hostile.intruders import Flooder, Liar

TOPICS = FleetTopics(FLEET)
FLOODERS = ("events", "chunks", "retained", "garbage")
WORST = {"chunks", "retained"}
LIARS = {"huge": intruders.HUGE_BYTES, "lying": 3_000}
BRIDGE_RSS_MOST = 450 * 1024 * 1024
END = "auditor/end"
STORE_MOST = 24 * 1024 * 1024
LOG_MOST = 1024 * 1024


@pytest.mark.long
@pytest.mark.timeout(900)
def test_hostile_gateways_are_bounded_counted_named_and_the_others_adapt(tmp_path: Path, mosquitto: Mosquitto) -> None:
    drifts = {"gw1": Drift("permuted"), "gw2": Drift("permuted")}
    fleet = ToyFleet(tmp_path, mosquitto, drifts, rounds=1, extra=(*FLOODERS, *LIARS))
    broker = BrokerSettings(mosquitto.host, mosquitto.port)
    flooders = [
        Flooder(broker, "events", intruders.events(TOPICS, "events"), rate_hz=intruders.EVENTS_HZ),
        Flooder(broker, "chunks", intruders.ungranted_chunks(TOPICS, "chunks")),
        Flooder(broker, "retained", intruders.retained(TOPICS, "retained")),
        Flooder(broker, "garbage", intruders.garbage(TOPICS, "garbage")),
    ]
    liars = [Liar(broker, FLEET, name, says_bytes=size) for name, size in LIARS.items()]
    try:
        fleet.start()
        fleet.wait("the bridge to hear its gateways", lambda store: len(store.gateways.states()) == 2, timeout_s=120)
        began_s = time.monotonic()
        for flooder in flooders:
            flooder.start()
        for liar in liars:
            liar.start()
        fleet.wait("the honest gateways' adaptation to be released and run", _closed, timeout_s=240)
        fleet.wait("the floods to end", lambda store: all(one.done.is_set() for one in flooders), timeout_s=240)
        peak = fleet.children.members["bridge"].peak_rss_bytes()
        fleet.wait("drops to be counted in the store", _all_counted, timeout_s=120)
        fleet.wait(
            "all events beyond the quota to be counted",
            lambda store: _dropped(store)["events"] >= intruders.EVENTS - _allowed(time.monotonic() - began_s),
            timeout_s=120,
        )
        fleet.wait("those beyond all bounds to be ignored", _worst_ignored, timeout_s=120)
        views = {view["id"]: view for view in _told(fleet, "fleet")}
        decisions = _told(fleet, "log")
        fleet.wait("stray retained messages to be cleared", lambda store: _retained(broker) == [], timeout_s=120)
        with fleet.store() as store:
            (record,) = store.adaptations.rounds("a1")
            kept = Counter(event.gateway for event in store.events.recent(limit=100_000))
        flooded_s = time.monotonic() - began_s
    finally:
        for flooder in flooders:
            flooder.stop()
        for liar in liars:
            liar.stop()
        statuses = fleet.stop()
    assert statuses["bridge"] == 0
    assert {"gw1", "gw2"} <= set(record.replied)
    assert set(record.failed) == set(LIARS)
    assert all(not any(grant.indices for grant in liar.grants) for liar in liars if liar.id == "huge"), "refused unseen"
    for gateway in WORST:
        assert views[gateway]["ignored"], (gateway, views[gateway])
    for gateway in FLOODERS:
        assert views[gateway]["dropped"] > 100, (gateway, views[gateway])
    for gateway in drifts:
        assert not views[gateway]["ignored"]
        assert views[gateway]["dropped"] == 0, views[gateway]
    named = {each["facts"]["gateway"] for each in decisions if (each["kind"], each["reason"]) == ("gateway", "ignored")}
    assert WORST <= named <= {*FLOODERS, *LIARS}
    assert peak < BRIDGE_RSS_MOST, f"{peak >> 20} MiB"
    assert kept["events"] <= _allowed(flooded_s)
    assert kept.total() < 12_000
    assert sum(path.stat().st_size for path in fleet.bridge_dir.glob("store.db*")) < STORE_MOST
    assert (tmp_path / "logs" / "bridge.log").stat().st_size < LOG_MOST


def _closed(store: Store) -> bool:
    if [adaptation.status for adaptation in store.adaptations.all()] != [DONE]:
        return False
    return all(_moved(store, name) for name in ("gw1", "gw2"))


def _moved(store: Store, gateway: str) -> bool:
    known = store.gateways.states().get(gateway)
    return known is not None and (known.state.cohort != "root" or known.state.weights_version > 1)


def _dropped(store: Store) -> Counter[str]:
    counted = Counter[str]()
    for (gateway, _), count in store.drops.all().items():
        counted[gateway] += count
    return counted


def _all_counted(store: Store) -> bool:
    counted = _dropped(store)
    return all(counted[gateway] > 100 for gateway in FLOODERS)


def _allowed(in_s: float) -> int:
    """How many messages of a gateway the bridge takes at most: a quota for each of its minutes that is touched."""
    return (int(in_s // WINDOW_S) + 2) * ConductLimits().messages_quota


def _worst_ignored(store: Store) -> bool:
    return {known.id for known in store.gateways.registered() if known.ignored_s is not None} >= WORST


def _told(fleet: ToyFleet, command: str) -> list[dict[str, Any]]:
    words = [find_program("server-bridge"), command, "-c", str(fleet.bridge_dir / "bridge.toml"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(done.stdout)
    assert isinstance(told, list)
    return told


def _retained(broker: BrokerSettings) -> list[str]:
    """Topics under which the broker keeps what does not belong there: all of them come before what is said after."""
    inbox: queue.Queue[SessionEvent] = queue.Queue(20_000)
    session = MqttSession(
        broker,
        "auditor",
        clean_start=True,
        session_expiry_s=0,
        inbox=inbox,
        subscriptions=[Subscription("clma/1/+/up/#"), Subscription(END)],
    )
    session.start()
    found = []
    try:
        while not isinstance(event := inbox.get(timeout=30.0), Received) or event.topic != END:
            if isinstance(event, Connected):
                session.publish(END, b"end", timeout_s=5.0)
            elif isinstance(event, Received) and event.retain and event.payload and not _belongs(event.topic):
                found.append(event.topic)
    finally:
        session.stop(2.0)
    return found


def _belongs(topic: str) -> bool:
    try:
        parsed = parse_topic(topic)
    except WireError:
        return False
    return parsed.fleet == FLEET and parsed.kind in (TopicKind.PRESENCE, TopicKind.STATE)
