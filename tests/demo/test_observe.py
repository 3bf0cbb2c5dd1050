from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.wire.messages import (
    ClockTrust,
    CountsBucket,
    CountsEvent,
    Event,
    EventBody,
    FlagEvent,
    Presence,
    State,
    TrustedVersions,
    UpdateLifecycleEvent,
)
from server_bridge.demo.data import BUCKETS_PER_PASS
from server_bridge.demo.observe import Observer, flags_of, gateway_facts, recent_accuracy
from server_bridge.demo.plan import Family, GatewayPlan
from server_bridge.demo.streams import StreamPlan
from server_bridge.store.store import Store, store_url

B = BUCKETS_PER_PASS
GATEWAY = "gw-01"
BEGAN_S = 1_800_000_000.0
STARTED_S = BEGAN_S + 5
STREAM = StreamPlan(GatewayPlan(GATEWAY, Family.PERMUTED, 1), 10.0, 20 * B, (10,) * B, (8,) * B)
CALM = StreamPlan(GatewayPlan("gw-02", Family.STATIONARY, 3), 10.0, 20 * B, (10,) * B, (8,) * B)
REMOUNT_S = STARTED_S + STREAM.pass_s
DIGEST = "a" * 64


class Fleet:
    """A store that is filled as the bridge would."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sequence = 0

    def event(self, body: EventBody, at_s: float, gateway: str = GATEWAY) -> None:
        self.sequence += 1
        self.store.events.take(
            Event(gateway=gateway, epoch="e", sequence=self.sequence, low=0, time_s=at_s, body=body), at_s + 0.1
        )

    def state(self, served: int, at_s: float, *, cohort: str = "root", version: int = 1) -> None:
        state = State(
            gateway=GATEWAY,
            boot_id="b",
            agent_version="1",
            bundle=DIGEST,
            weights=DIGEST,
            weights_version=version,
            cohort=cohort,
            ota_state="committed",
            trusted=TrustedVersions(),
            clock=ClockTrust(trusted=True, floor_s=0.0),
            trainable_samples=0,
            training=False,
            served_samples=served,
            peak_rss_bytes=7,
        )
        self.store.gateways.set_state(state, at_s)

    def flag(self, at_s: float, stream_s: float, *, cohort: str = "root", gateway: str = GATEWAY) -> None:
        self.sequence += 1
        self.event(
            FlagEvent(
                flag_id=f"{self.sequence:064x}",
                monitor="loss-rise",
                firing=1,
                bundle=DIGEST,
                weights=DIGEST,
                weights_version=1,
                cohort=cohort,
                first_drifted_sample="1-1",
                first_drifted_time_s=stream_s,
                statistic=1.0,
                threshold=0.5,
                trainable_samples=1,
            ),
            at_s,
            gateway,
        )

    def counts(self, buckets: range, right: int, *, weights: str = DIGEST, cohort: str = "root") -> None:
        spans = [CountsBucket(bucket=n, labelled=STREAM.expected(n), right=right, loss_sum=0.0) for n in buckets]
        body = CountsEvent(
            bundle=DIGEST, weights=weights, weights_version=1, cohort=cohort, bucket_s=STREAM.bucket_s, buckets=spans
        )
        self.event(body, BEGAN_S)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    yield Fleet(store)
    store.close()


@pytest.fixture
def observer(fleet: Fleet) -> Observer:
    return Observer(fleet.store, {GATEWAY: STREAM, "gw-02": CALM})


def test_the_streams_start_is_the_earliest_that_a_state_allows(fleet: Fleet, observer: Observer) -> None:
    fleet.state(served=10, at_s=STARTED_S + 1.6)
    observer.look()
    fleet.state(served=50, at_s=STARTED_S + 5.0)
    observer.look()
    fleet.state(served=90, at_s=STARTED_S + 9.9)
    assert observer.look().started_s[GATEWAY] == pytest.approx(STARTED_S)


@pytest.mark.parametrize(
    ("after_remount_s", "cohort", "expected"),
    [(1.0, "root", True), (-5.0, "root", False), (1.0, "c1", False)],
)
def test_flags_are_expected_only_after_the_remount_about_the_base(
    fleet: Fleet, observer: Observer, after_remount_s: float, cohort: str, expected: bool
) -> None:
    fleet.state(served=10, at_s=STARTED_S + 1.0)
    fleet.flag(REMOUNT_S + after_remount_s, STREAM.pass_s + after_remount_s - 0.5, cohort=cohort)
    (flag,) = flags_of(STREAM, observer.look(), BEGAN_S)
    assert flag.expected is expected
    assert flag.at_s == pytest.approx(REMOUNT_S + after_remount_s - BEGAN_S)


def test_a_flag_of_a_gateway_that_was_left_alone_is_false(fleet: Fleet, observer: Observer) -> None:
    fleet.flag(REMOUNT_S + 1.0, STREAM.pass_s, gateway="gw-02")
    (flag,) = flags_of(CALM, observer.look(), BEGAN_S)
    assert not flag.expected


def test_each_event_is_read_once(fleet: Fleet, observer: Observer) -> None:
    fleet.flag(REMOUNT_S, STREAM.pass_s)
    observer.look()
    fleet.flag(REMOUNT_S + 1, STREAM.pass_s)
    assert len(observer.look().flags) == len(observer.look().flags) == 2


def test_refusals_name_the_map_and_the_reason(fleet: Fleet, observer: Observer) -> None:
    for digest, reason in (("b" * 64, "bad_signature"), ("c" * 64, "rollback")):
        fleet.event(UpdateLifecycleEvent(step="refused", reason=reason, map_digest=digest), BEGAN_S + 1)
    fleet.event(UpdateLifecycleEvent(step="verifying", map_digest="b" * 64), BEGAN_S + 2)
    assert observer.look().refusals("b" * 64) == {GATEWAY: ("bad_signature", BEGAN_S + 1)}


def test_a_repaired_gateway_becomes_facts(fleet: Fleet, observer: Observer) -> None:
    fleet.store.gateways.set_presence(Presence(gateway=GATEWAY, online=True, boot_id="b", connection=1), BEGAN_S)
    fleet.counts(range(2 * B), right=4)
    fleet.counts(range(2 * B, 3 * B), right=8, weights="b" * 64, cohort="c1")
    fleet.event(UpdateLifecycleEvent(step="committed", cohort="root", version=1), BEGAN_S + 6)
    fleet.event(UpdateLifecycleEvent(step="committed", cohort="c1", version=1), BEGAN_S + 60)
    fleet.state(served=100, at_s=STARTED_S + 10, cohort="c1")
    look = observer.look()
    assert look.online == {GATEWAY}
    facts = gateway_facts(STREAM, look, BEGAN_S, peak_rss_bytes=9)
    assert facts.before.accuracy == 0.4
    assert facts.drifted.accuracy == 0.5
    assert facts.final.accuracy == 1.0
    assert (facts.cohort, facts.version) == ("c1", 1)
    assert facts.activated_s == 60.0
    assert facts.remount_s == pytest.approx(REMOUNT_S - BEGAN_S)
    assert facts.peak_rss_bytes == 9
    assert len(facts.points) == 3 * B
    assert recent_accuracy(STREAM, look) == 1.0


def test_a_gateway_that_never_spoke_becomes_facts_too(observer: Observer) -> None:
    facts = gateway_facts(STREAM, observer.look(), BEGAN_S, peak_rss_bytes=0)
    assert facts.before.accuracy is None
    assert facts.activated_s is None
