import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.messages import ClockTrust, FlagEvent, State, TrustedVersions
from server_bridge.rounds.trigger import Flagged, Standing, TriggerParams, decide, standing

PARAMS = TriggerParams(
    min_flags=2, max_age_s=1000.0, settle_s=60.0, min_samples=100, min_samples_cap_s=300.0, cooldown_s=500.0
)


def flagged(gateway: str, received_s: float, samples: int = 100, online: bool = True) -> Flagged:
    return Flagged(f"{gateway}-{received_s}", gateway, received_s, samples, online)


@pytest.mark.parametrize(
    ("flags", "now_s", "last_ended_s", "start", "reason", "wake_s"),
    [
        ([], 0.0, None, False, "too-few-flags", None),
        ([flagged("a", 0.0), flagged("a", 1.0)], 100.0, None, False, "too-few-flags", None),
        ([flagged("a", 0.0), flagged("b", 1500.0)], 1600.0, None, False, "too-few-flags", None),
        ([flagged("a", 0.0), flagged("b", 10.0)], 69.9, None, False, "settling", 70.0),
        ([flagged("a", 0.0), flagged("b", 10.0)], 70.0, None, True, "flags-settled", None),
        ([flagged("a", 0.0), flagged("b", 10.0), flagged("c", 50.0)], 80.0, None, False, "settling", 110.0),
        ([flagged("a", 0.0, 99), flagged("b", 10.0)], 80.0, None, False, "too-few-samples", 310.0),
        ([flagged("a", 0.0, 99), flagged("b", 10.0)], 310.0, None, True, "cap-reached", None),
        ([flagged("a", 0.0), flagged("b", 10.0), flagged("c", 309.0)], 310.0, None, True, "cap-reached", None),
        ([flagged("a", 0.0, online=False), flagged("b", 10.0)], 80.0, None, False, "gateways-away", 310.0),
        ([flagged("a", 0.0, 9), flagged("b", 1.0, online=False)], 80.0, None, False, "gateways-away", 301.0),
        ([flagged("a", 0.0, online=False), flagged("b", 10.0)], 310.0, None, True, "cap-reached", None),
        ([flagged("a", 0.0), flagged("b", 10.0)], 310.0, None, True, "flags-settled", None),
        ([flagged("a", 0.0), flagged("b", 10.0)], 80.0, 20.0, False, "cool-down", 520.0),
        ([flagged("a", 0.0), flagged("b", 10.0)], 520.0, 20.0, True, "flags-settled", None),
    ],
)
def test_decisions(
    flags: list[Flagged], now_s: float, last_ended_s: float | None, start: bool, reason: str, wake_s: float | None
) -> None:
    decision = decide(PARAMS, flags, now_s, last_ended_s=last_ended_s)
    assert (decision.start, decision.reason, decision.wake_s) == (start, reason, wake_s)
    assert decision.detail


FLAGS = st.lists(
    st.builds(
        flagged,
        st.sampled_from(["a", "b", "c", "d"]),
        st.floats(0, 500),
        st.integers(0, 200),
        st.booleans(),
    ),
    max_size=8,
)


@given(flags=FLAGS, now_s=st.floats(500, 3000))
def test_the_order_of_flags_does_not_matter(flags: list[Flagged], now_s: float) -> None:
    assert decide(PARAMS, flags, now_s) == decide(PARAMS, list(reversed(flags)), now_s)


@given(flags=FLAGS, now_s=st.floats(500, 3000), last_ended_s=st.none() | st.floats(0, 3000))
def test_a_start_has_its_grounds(flags: list[Flagged], now_s: float, last_ended_s: float | None) -> None:
    decision = decide(PARAMS, flags, now_s, last_ended_s=last_ended_s)
    recent = {flag.gateway for flag in flags if now_s - flag.received_s <= PARAMS.max_age_s}
    if decision.start:
        assert len(recent) >= PARAMS.min_flags
        assert last_ended_s is None or now_s >= last_ended_s + PARAMS.cooldown_s
        assert set(decision.gateways) == {flag.gateway for flag in flags}
    else:
        assert decision.wake_s is None or decision.wake_s > now_s


@given(flags=FLAGS)
def test_enough_fresh_flags_start_at_the_latest_at_the_cap(flags: list[Flagged]) -> None:
    if len({flag.gateway for flag in flags}) >= PARAMS.min_flags:
        reached_s = max(flag.received_s for flag in flags)
        assert decide(PARAMS, flags, reached_s + PARAMS.min_samples_cap_s).start


@given(flags=FLAGS, now_s=st.floats(500, 900))
def test_waiting_until_the_wake_time_always_ends_that_reason(flags: list[Flagged], now_s: float) -> None:
    decision = decide(PARAMS, flags, now_s)
    if decision.wake_s is not None:
        later = decide(PARAMS, flags, decision.wake_s)
        assert later.start or later.reason != decision.reason


def flag_about(weights: str) -> FlagEvent:
    return FlagEvent(
        flag_id="a" * 64,
        monitor="loss-rise",
        firing=0,
        bundle="b" * 64,
        weights=weights * 64,
        weights_version=1,
        cohort="root",
        first_drifted_sample="s",
        first_drifted_time_s=0.0,
        statistic=1.0,
        threshold=0.5,
        trainable_samples=5,
    )


def running(weights: str) -> State:
    return State(
        gateway="gw",
        boot_id="boot",
        agent_version="1",
        bundle="b" * 64,
        weights=weights * 64,
        weights_version=1,
        cohort="root",
        ota_state="idle",
        trusted=TrustedVersions(),
        clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=0,
        training=False,
    )


@pytest.mark.parametrize(
    ("flag", "state", "released", "expected"),
    [
        ("1", "1", "1", Standing.CURRENT),
        ("1", None, "1", Standing.CURRENT),
        ("1", None, "2", Standing.UNKNOWN),
        ("1", "1", "2", Standing.CURRENT),
        ("1", "2", "2", Standing.SUPERSEDED),
        ("2", "1", "2", Standing.CURRENT),
        ("1", "3", "2", Standing.UNKNOWN),
    ],
)
def test_a_flag_counts_while_its_weights_run(flag: str, state: str | None, released: str, expected: Standing) -> None:
    known = None if state is None else running(state)
    assert standing(flag_about(flag), known, released * 64) is expected
