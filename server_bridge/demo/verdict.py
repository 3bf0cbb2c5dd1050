"""The demo's criteria, judged on the collected facts; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from server_bridge.demo.facts import CLMA, FEDAVG, ArmFacts, DemoFacts, GatewayFacts, Tally
from server_bridge.demo.plan import FULL_GATEWAYS, Family

FAMILY_RATIO_LEAST = 0.88
GATEWAY_RATIO_LEAST = 0.75
STATIONARY_LOSS_MOST = 0.03
POISONING_LEAST = 0.05
ROOT_COHORT = "root"
BAD_RELEASES = 2


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that must hold.

    Attributes:
        judged: whether the exit status depends on it.
    """

    name: str
    holds: bool
    detail: str
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """All criteria of a run."""

    criteria: tuple[Criterion, ...]

    @property
    def failed(self) -> tuple[Criterion, ...]:
        """Judged criteria that do not hold."""
        return tuple(criterion for criterion in self.criteria if criterion.judged and not criterion.holds)

    @property
    def holds(self) -> bool:
        """Whether the demo shows what it claims."""
        return not self.failed


def judge(facts: DemoFacts) -> Verdict:
    """Every criterion; with other than ten gateways only the closed loop is judged."""
    full = len(facts.arms[CLMA].gateways) == FULL_GATEWAYS
    always = [_all_flagged(facts), _all_activated(facts), _bad_releases_refused(facts)]
    figures = [
        _no_false_flag(facts),
        _families_separated(facts),
        _families_recovered(facts),
        _no_gateway_left_behind(facts),
        _stationary_unharmed(facts),
        _averaging_poisons(facts),
    ]
    shown = [Criterion(each.name, each.holds, each.detail, judged=full) for each in figures]
    return Verdict((always[0], *shown, *always[1:]))


def false_flags(arm: ArmFacts) -> list[str]:
    """Gateways with a flag that no remount explains."""
    return [
        gateway.id
        for gateway in arm.gateways
        if any(not flag.expected for flag in gateway.flags) or (gateway.flags and not gateway.drifts)
    ]


def families_separated(arm: ArmFacts) -> bool:
    """Each drifted family is exactly one cohort, no cohort holds two, the stationary stay in the root."""
    cohorts = {family: {g.cohort for g in arm.gateways if g.family is family} for family in Family}
    one_each = all(len(cohorts[family]) == 1 for family in Family)
    stayed = cohorts[Family.STATIONARY] == {ROOT_COHORT}
    return one_each and stayed and len(set[str]().union(*cohorts.values())) == len(cohorts)


def mean_accuracy(tallies: Iterable[Tally]) -> float:
    """Mean over gateways of their accuracies; one without any counts as 0."""
    return fmean([tally.accuracy or 0.0 for tally in tallies] or [0.0])


def ratio(gateway: GatewayFacts) -> float:
    """Final over before; 0 where one of them was not measured."""
    before, final = gateway.before.accuracy, gateway.final.accuracy
    return final / before if before and final is not None else 0.0


def refused(facts: DemoFacts) -> int:
    """Pairs of gateway and bad release that was refused."""
    return sum(len({refusal.gateway for refusal in bad.refusals}) for bad in facts.bad_releases)


def drifted_of(arm: ArmFacts) -> list[GatewayFacts]:
    """Gateways whose sensor was remounted."""
    return [gateway for gateway in arm.gateways if gateway.drifts]


def stationary_of(arm: ArmFacts) -> list[GatewayFacts]:
    """Gateways that were left alone."""
    return [gateway for gateway in arm.gateways if not gateway.drifts]


def _all_flagged(facts: DemoFacts) -> Criterion:
    drifted = drifted_of(facts.arms[CLMA])
    silent = [gateway.id for gateway in drifted if gateway.flagged_s is None]
    detail = f"not flagged: {', '.join(silent)}" if silent else f"{len(drifted)} of {len(drifted)}"
    return Criterion("Every remounted gateway flagged its drift", not silent, detail)


def _no_false_flag(facts: DemoFacts) -> Criterion:
    wrong = false_flags(facts.arms[CLMA])
    return Criterion("No false flag", not wrong, ", ".join(wrong) or "none in the CLMA arm")


def _families_separated(facts: DemoFacts) -> Criterion:
    arm = facts.arms[CLMA]
    held: dict[str, list[str]] = {}
    for gateway in arm.gateways:
        held.setdefault(gateway.cohort, []).append(gateway.id.removeprefix("gw-"))
    detail = "; ".join(f"{cohort}: {' '.join(ids)}" for cohort, ids in sorted(held.items()))
    return Criterion("Families separated, stationary gateways in the root", families_separated(arm), detail)


def _families_recovered(facts: DemoFacts) -> Criterion:
    means = {
        family: fmean([ratio(g) for g in facts.arms[CLMA].gateways if g.family is family])
        for family in (Family.PERMUTED, Family.FLIPPED)
    }
    detail = ", ".join(f"{family} {mean:.2f}" for family, mean in means.items())
    holds = min(means.values()) >= FAMILY_RATIO_LEAST
    return Criterion(f"Family means recover to at least {FAMILY_RATIO_LEAST:.2f} of before", holds, detail)


def _no_gateway_left_behind(facts: DemoFacts) -> Criterion:
    worst = min(drifted_of(facts.arms[CLMA]), key=ratio)
    holds = ratio(worst) >= GATEWAY_RATIO_LEAST
    detail = f"worst {worst.id} with {ratio(worst):.2f}"
    return Criterion(f"No remounted gateway under {GATEWAY_RATIO_LEAST:.2f} of before", holds, detail)


def _stationary_unharmed(facts: DemoFacts) -> Criterion:
    changes = {
        gateway.id: (gateway.final.accuracy or 0.0) - (gateway.before.accuracy or 0.0)
        for gateway in stationary_of(facts.arms[CLMA])
    }
    detail = ", ".join(f"{name} {change:+.3f}" for name, change in changes.items())
    holds = min(changes.values()) >= -STATIONARY_LOSS_MOST
    return Criterion(f"Stationary gateways at most {STATIONARY_LOSS_MOST:.2f} below before", holds, detail)


def _averaging_poisons(facts: DemoFacts) -> Criterion:
    clma = mean_accuracy(g.final for g in stationary_of(facts.arms[CLMA]))
    name = f"Plain averaging costs the stationary gateways at least {POISONING_LEAST:.2f}"
    fedavg = facts.arms.get(FEDAVG)
    if fedavg is None:
        return Criterion(name, False, "the FedAvg arm did not run")
    averaged = mean_accuracy(g.final for g in stationary_of(fedavg))
    return Criterion(name, clma - averaged >= POISONING_LEAST, f"{clma:.3f} with CLMA, {averaged:.3f} with FedAvg")


def _all_activated(facts: DemoFacts) -> Criterion:
    waiting = [
        f"{gateway.id} ({name})"
        for name, arm in facts.arms.items()
        for gateway in arm.gateways
        if gateway.activated_s is None
    ]
    detail = f"not on: {', '.join(waiting)}" if waiting else "fetched, verified and activated everywhere"
    return Criterion("The released weights run on every gateway", not waiting, detail)


def _bad_releases_refused(facts: DemoFacts) -> Criterion:
    expected = BAD_RELEASES * len(facts.arms[CLMA].gateways)
    count = refused(facts)
    detail = f"{count} of {expected} refusals reported" + ("" if facts.reasserted else "; own release not re-asserted")
    return Criterion("Both bad releases refused everywhere", count == expected and facts.reasserted, detail)
