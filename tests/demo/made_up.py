"""A made-up run of the demo in which everything holds; tests spoil one thing at a time."""

import numpy as np

from server_bridge.demo.facts import (
    CLMA,
    FEDAVG,
    ArmFacts,
    BadRelease,
    DemoFacts,
    Flag,
    GatewayFacts,
    Point,
    Refusal,
    RoundFacts,
    Tally,
)
from server_bridge.demo.plan import Family, GatewayPlan, plan_fleet

SPAN_S = 2.2
WINDOWS = 50
ACTIVATED_S = 62.0
LAST_S = 84.0
COHORTS = {Family.PERMUTED: "c1", Family.FLIPPED: "c2", Family.STATIONARY: "root"}


def made_up_facts(gateways: int = 10) -> DemoFacts:
    """A whole run, the same every time."""
    rng = np.random.default_rng(5)
    arms = {name: made_up_arm(name, gateways, rng) for name in (CLMA, FEDAVG)}
    ids = [gateway.id for gateway in arms[CLMA].gateways]
    titles = (("properly signed, then one byte of a signed value flipped", "a"), ("signed by a stranger's keys", "b"))
    bad = tuple(
        BadRelease(title, 3, letter * 64, 90.0, tuple(Refusal(name, "bad_signature", 92.0) for name in ids))
        for title, letter in titles
    )
    return DemoFacts(
        seed=0, broker="mosquitto", arms=arms, bad_releases=bad, reasserted=True, wall_s=183.4, setup_s=11.0
    )


def made_up_arm(strategy: str, gateways: int, rng: np.random.Generator) -> ArmFacts:
    facts = tuple(_gateway(plan, strategy, rng) for plan in plan_fleet(gateways))
    rounds = tuple(RoundFacts(n + 1, 31.0 + 3.6 * n, 34.4 + 3.6 * n, gateways, 0) for n in range(8))
    phases = (("start", 5.0), ("clean", 13.0), ("drift", 12.5), ("rounds", 29.0), ("release", 3.0), ("recovery", 15.0))
    return ArmFacts(strategy, facts, rounds, 60.4, 85.0, phases, 16_000_000, 4_200_000)


def _gateway(plan: GatewayPlan, strategy: str, rng: np.random.Generator) -> GatewayFacts:
    remount = float(rng.uniform(16.0, 18.5))
    averaged = strategy == FEDAVG
    before = float(rng.uniform(0.91, 0.98))
    low = float(rng.uniform(0.15, 0.3)) if plan.drifts else before
    final = before * float(rng.uniform(0.7, 0.8) if averaged else rng.uniform(0.93, 1.02))
    activated = ACTIVATED_S + float(rng.uniform(0, 1.5))
    points, start = [], 4.0
    while start < LAST_S:
        level = before if start < remount else low if start < activated else min(final, 1.0)
        version = 1 if start < activated else 2 if COHORTS[plan.family] == "root" or averaged else 1
        cohort = "root" if start < activated or averaged else COHORTS[plan.family]
        label = version if cohort == "root" else 2
        points.append(Point(start, start + SPAN_S, label, cohort, _tally(level, rng, WINDOWS)))
        start += SPAN_S
    flags = (Flag(remount + float(rng.uniform(0.6, 1.4)), expected=True),) if plan.drifts else ()
    return GatewayFacts(
        id=plan.id,
        family=plan.family,
        subject=plan.subject,
        remount_s=remount,
        flags=flags,
        cohort="root" if averaged else COHORTS[plan.family],
        version=2,
        activated_s=activated,
        before=_exact(before),
        drifted=_exact(low),
        final=_exact(min(final, 1.0)),
        points=tuple(points),
        peak_rss_bytes=112 * 1024 * 1024,
    )


def _tally(level: float, rng: np.random.Generator, labelled: int) -> Tally:
    return Tally(labelled, int(rng.binomial(labelled, level)))


def _exact(level: float) -> Tally:
    return Tally(1000, round(1000 * level))
