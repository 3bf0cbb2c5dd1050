"""Moves between cohorts in words."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from server_bridge.store.lineage import CohortLife, CohortMove
from server_bridge.store.merges import MERGED, QUEUED, MergeRequest
from server_bridge.store.participation import Participation

IGNORED, EMPTIED = "ignored", "emptied"  # a gateway not listened to, a cohort without members: in every view
REASONS = {
    "newcomer": "taken into the fleet",
    "drifted": "drifted, and grouped by how",
    "recognised": "drifted into a known concept",
    "returned": "had split off through noise, and is back",
    "readmitted": "had left, and is listened to again",
    "merged": "two cohorts had become alike",
    "merge-asked": "an operator let its cohort go into the other",
    "left": "is ignored, or no more of the fleet",
    "placed": "found there in a release",
    "abandoned": "its adaptation released nothing",
}
NUMBERS = (
    ("similarity", "similarity"),
    ("standard_error", "standard error"),
    ("threshold", "threshold"),
    ("second_similarity", "similarity to the next cohort"),
    ("reliability", "reliability"),
    ("loss", "loss"),
    ("former_loss", "loss of the former weights"),
    ("level", "loss on the cohort's own members"),
    ("samples", "samples"),
    ("distance", "distance of the weights"),
    ("ks_statistic", "signed KS statistic"),
    ("rounds", "rounds in a row"),
)


def move_line(move: CohortMove) -> str:
    """One move on one line."""
    told = ", ".join([*_numbers(move.statistics), *_asked(move.statistics)])
    why = f"{move.reason}: {REASONS.get(move.reason, move.reason)}{f' ({told})' if told else ''}"
    where = _where(move.adaptation, move.round)
    return f"{_when(move.time_s)} {where} {move.gateway}: {_way(move)}: {why}"


def ended_line(life: CohortLife) -> str:
    """A cohort's end on one line."""
    into = f" into {life.into}" if life.into else ""
    where = _where(life.ended_adaptation, life.ended_round)
    return f"{_when(life.ended_s or 0.0)} {where} cohort {life.id} ended: {life.ended_why}{into}"


def asked_words(by: str, asked_s: float, why: str) -> str:
    """Who asked for something, when and why."""
    return f"asked by {by} at {_when(asked_s)}: {why}"


def merge_line(request: MergeRequest) -> str:
    """What an operator asked, and what became of it."""
    asked = asked_words(request.asked_by, request.asked_s, request.why)
    if request.status == QUEUED:
        return f"cohort {request.gone} is to go into {request.kept} ({asked}): it waits until no adaptation runs"
    if request.status == MERGED:
        return f"cohort {request.gone} went into {request.kept}, {request.outcome} ({asked})"
    return f"cohort {request.gone} did not go into {request.kept}: {request.outcome} ({asked})"


def refused_line(request: MergeRequest) -> str:
    """A request that the bridge did not fulfil, among the lines of the history."""
    return f"{_when(request.ended_s or 0.0)} {_where(None, None)} {merge_line(request)}"


def ignored_words(gateway: str, why: str) -> str:
    """A gateway that the bridge does not listen to; the same words in every view."""
    return f"{gateway}: ignored: {why} (`server-bridge gateway readmit {gateway}` ends it)"


def explain_lines(
    gateway: str,
    moves: Sequence[CohortMove],
    members: Mapping[str, str],
    *,
    ignored: str | None = None,
    last_round: Participation | None = None,
) -> Iterator[str]:
    """Where a gateway is, with whom, and why: its last decision and the way to it.

    Args:
        gateway: its id.
        moves: its own, oldest first.
        members: gateway to cohort now, of the bundle of its last move.
        ignored: why the bridge does not listen to it, if it does not.
        last_round: its part in the last round, if it was asked.
    """
    if ignored:
        yield ignored_words(gateway, ignored)
    if last_round is not None:
        yield f"last round: {last_round.words()}"
    if not moves:
        yield f"{gateway} has taken part in no round yet: it runs the root cohort's weights"
        return
    last = moves[-1]
    cohort = members.get(gateway)
    if cohort is None:
        yield f"{gateway} is in no cohort since {_when(last.time_s)}: {REASONS.get(last.reason, last.reason)}"
    else:
        others = [other for other, theirs in members.items() if theirs == cohort and other != gateway]
        yield f"{gateway} is in cohort {cohort}, {'with ' + ', '.join(others) if others else 'by itself'}"
    decided = next((move for move in reversed(moves) if move.statistics), None)
    if decided is not None:
        where = _where(decided.adaptation, decided.round)
        yield f"decision: {_way(decided)} {where}, {decided.reason}: {REASONS.get(decided.reason, '')}"
        yield from (f"  {line}" for line in _statistics(decided.statistics))
    yield "the way here:"
    yield from (f"  {move_line(move)}" for move in moves)


def _statistics(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from _numbers(facts)
    yield from _asked(facts)
    for side, words in (("own", "nearest in its group"), ("other", "nearest outside it")):
        neighbour = facts.get(side)
        if isinstance(neighbour, dict):
            error = neighbour.get("standard_error")
            within = "" if error is None else f", standard error {error:.3g}"
            yield f"{words}: {neighbour.get('client')}, similarity {neighbour.get('similarity') or 0.0:.3g}{within}"
        elif side in facts:
            yield f"{words}: nobody"
    losses = facts.get("losses")
    if isinstance(losses, dict):
        yield f"losses: {', '.join(f'{cohort} {loss}' for cohort, loss in losses.items())}"
    if "rule" in facts:
        yield f"rule: {facts['rule']}"
    if "sentence" in facts:
        yield f"in words: {facts['sentence']}"


def _numbers(facts: Mapping[str, Any]) -> Iterator[str]:
    alone = "own" in facts and facts["own"] is None
    for key, words in NUMBERS:
        if alone and key in ("similarity", "standard_error"):  # of a gateway by itself, with itself
            continue
        if isinstance(facts.get(key), int | float):
            yield f"{words} {facts[key]:.3g}"


def _asked(facts: Mapping[str, Any]) -> Iterator[str]:
    if "asked_by" in facts:
        yield asked_words(str(facts["asked_by"]), float(facts["asked_s"]), str(facts["why"]))


def _way(move: CohortMove) -> str:
    return f"{move.source or 'nowhere'} -> {move.target or 'nowhere'}"


def _where(adaptation: str | None, number: int | None) -> str:
    if adaptation is None:
        return "[between adaptations]"
    return f"[{adaptation}]" if number is None else f"[{adaptation}, round {number}]"


def _when(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
