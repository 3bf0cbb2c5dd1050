"""What a round leaves on record: with a result or without one, for machines and in words."""

import math
from collections.abc import Mapping, Set

from server_bridge.flower.engine import RoundOutcome
from server_bridge.store.adaptations import Adaptation, RoundRecord
from server_bridge.store.decisions import Fact
from server_bridge.store.participation import left_out_words


def counted(
    adaptation: Adaptation,
    outcome: RoundOutcome,
    drifted: Set[str],
    started_s: float,
    ended_s: float,
    weights: Mapping[str, str],
) -> RoundRecord:
    """The record of a round that counts.

    Args:
        adaptation: as it was before the round.
        drifted: gateways with an open flag.
        started_s, ended_s: seconds since 1970.
        weights: digests by cohort.
    """
    numbers = {
        name: float(value)
        for name, value in outcome.metrics.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return RoundRecord(
        adaptation=adaptation.id,
        round=outcome.server_round,
        attempt=adaptation.attempts + 1,
        started_s=started_s,
        ended_s=ended_s,
        replied=list(outcome.ok),
        failed=outcome.failed,
        noted=outcome.noted,
        drifted=sorted(drifted),
        cohorts=outcome.assignments,
        weights=dict(weights),
        metrics=numbers,
    )


def counted_words(adaptation: Adaptation, outcome: RoundOutcome, cohorts: int) -> str:
    """How many gateways counted, in how many cohorts, and who was left out."""
    asked, told = len(outcome.ok) + len(outcome.failed), left_out_words(outcome.failed, outcome.noted)
    return (
        f"round {outcome.server_round} of {adaptation.rounds}: {len(outcome.ok)} of {asked} gateways counted, "
        f"{cohorts} cohorts{f'; {told}' if told else ''}"
    )


def counted_facts(outcome: RoundOutcome) -> dict[str, Fact]:
    """The same for machines."""
    return {
        "round": outcome.server_round,
        "failed": outcome.failed,
        "noted": outcome.noted,
        "regrouped": sorted(outcome.regrouped),
        "cohorts": outcome.assignments,
    }


def without_result(adaptation: Adaptation, started_s: float, ended_s: float, failed: Mapping[str, str]) -> RoundRecord:
    """The record of an attempt that nobody answered usably."""
    return RoundRecord(
        adaptation=adaptation.id,
        round=adaptation.rounds_done + 1,
        attempt=adaptation.attempts + 1,
        started_s=started_s,
        ended_s=ended_s,
        replied=[],
        failed=dict(failed),
        drifted=[],
        cohorts={},
        weights={},
        metrics={},
    )


def useless(adaptation: Adaptation, outcome: RoundOutcome, flagged: Set[str]) -> str | None:
    """Why a round counts as an attempt only: a first round without anyone it is for would adapt the others."""
    if not outcome.ok:
        return "nobody answered usably"
    if adaptation.rounds_done == 0 and flagged and not flagged & set(outcome.ok):
        return f"none of the flagged gateways answered usably: {', '.join(sorted(flagged))}"
    return None
