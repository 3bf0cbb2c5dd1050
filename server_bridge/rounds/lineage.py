"""From what happened to cohorts to their lineage in the store, inside the transaction that commits it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server_bridge.cohorts.membership import ROOT, Move
from server_bridge.store.lineage import CohortLife, CohortMove, LineageTable
from server_bridge.store.merges import MergeRequest

MERGE_ASKED = "merge-asked"


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened to a bundle's cohorts; ``round`` is ``None`` at an adaptation's end, both between two."""

    bundle: str
    adaptation: str | None
    round: int | None
    time_s: float


def record_round(
    lineage: LineageTable,
    moment: Moment,
    moves: Sequence[Move],
    names: Mapping[int, str],
    members: Mapping[str, str],
    living: Collection[str],
) -> None:
    """Make the lineage say what a round left.

    Args:
        lineage: to be inside the caller's transaction.
        moment: the round.
        moves: the strategy's, in their order.
        names: node id to gateway, of the gateways that the bridge listens to.
        members: gateway to cohort after the round.
        living: the cohorts after it.
    """
    before, gone = lineage.members(moment.bundle), lineage.left(moment.bundle)
    booked = [(names[move.client], move) for move in moves if move.client in names]
    steps: list[CohortMove] = []
    for gateway, cohort in sorted(members.items()):
        mine = [move for name, move in booked if name == gateway]
        steps += _steps(moment, gateway, before.get(gateway), cohort, mine, names, gateway in gone)
    steps += [
        _step(moment, gateway, cohort, None, "left", {})
        for gateway, cohort in before.items()
        if gateway not in members and gateway not in names.values()
    ]
    merged = {move.source: move for move in moves if move.reason in ("merged", "returned") and move.source}
    _lives(lineage, moment, living, {name: (move.reason, move.target) for name, move in merged.items()})
    lineage.move(steps)


def record_abandoned(
    lineage: LineageTable, moment: Moment, members: Mapping[str, str], living: Collection[str]
) -> None:
    """An adaptation ended without a release: everybody is where the releases say.

    Args:
        lineage: to be inside the caller's transaction.
        moment: the end.
        members: gateway to cohort in the releases; all others are in the root.
        living: the cohorts of the releases.
    """
    steps = [
        _step(moment, gateway, cohort, members.get(gateway, ROOT), "abandoned", {})
        for gateway, cohort in lineage.members(moment.bundle).items()
        if members.get(gateway, ROOT) != cohort
    ]
    if steps:
        _lives(lineage, moment, {ROOT, *living}, {}, why="abandoned")
    lineage.move(steps)


def record_merge(
    lineage: LineageTable,
    moment: Moment,
    request: MergeRequest,
    members: Mapping[str, str],
    living: Collection[str],
) -> list[str]:
    """An operator's merge is released: who went, by whose wish, when it was asked and why.

    Args:
        lineage: to be inside the caller's transaction.
        moment: when it was released.
        request: the operator's.
        members: gateway to cohort in the releases now; all others are in the root.
        living: the cohorts of the releases now.

    Returns: the gateways that went.
    """
    facts = {"rule": MERGE_ASKED, "asked_by": request.asked_by, "asked_s": request.asked_s, "why": request.why}
    movers = [gateway for gateway, cohort in lineage.members(moment.bundle).items() if cohort == request.gone]
    movers = [gateway for gateway in movers if members.get(gateway, ROOT) == request.kept]
    _lives(lineage, moment, {ROOT, *living}, {request.gone: (MERGE_ASKED, request.kept)})
    lineage.move([_step(moment, gateway, request.gone, request.kept, MERGE_ASKED, facts) for gateway in movers])
    return movers


def _steps(
    moment: Moment,
    gateway: str,
    before: str | None,
    after: str,
    moves: Sequence[Move],
    names: Mapping[int, str],
    was_here: bool,
) -> Iterator[CohortMove]:
    """A gateway's way from where the lineage has it to where the round left it; standing still is no move."""
    place = before
    found = "readmitted" if was_here else "placed"
    for move in moves:
        if move.target is None or move.target == place:
            continue
        if move.source is not None and move.source != place:
            yield _step(moment, gateway, place, move.source, found if place is None else "placed", {})
            place = move.source
        reason = ("readmitted" if was_here else "newcomer") if move.reason == "joined" else move.reason
        facts = move.facts if move.facts is not None else {}
        yield _step(moment, gateway, place, move.target, reason, named(facts, names))
        place = move.target
    if place != after:
        yield _step(moment, gateway, place, after, found if place is None else "placed", {})


def _step(
    moment: Moment, gateway: str, source: str | None, target: str | None, reason: str, statistics: dict[str, Any]
) -> CohortMove:
    return CohortMove(
        time_s=moment.time_s,
        bundle=moment.bundle,
        adaptation=moment.adaptation,
        round=moment.round,
        gateway=gateway,
        source=source,
        target=target,
        reason=reason,
        statistics=statistics,
    )


def _lives(
    lineage: LineageTable,
    moment: Moment,
    living: Collection[str],
    merged: Mapping[str, tuple[str, str | None]],
    *,
    why: str = "emptied",
) -> None:
    lives = {life.id: life for life in lineage.cohorts(moment.bundle)}
    for cohort in sorted(living, key=lambda name: (name != ROOT, name)):
        if cohort not in lives:
            lineage.begin(_life(moment, cohort))
    for cohort, life in lives.items():
        if life.ended_s is None and cohort not in living and cohort != ROOT:
            reason, into = merged.get(cohort, (why, None))
            lineage.end(moment.bundle, cohort, reason, moment.time_s, moment.adaptation, moment.round, into)


def _life(moment: Moment, cohort: str) -> CohortLife:
    began = cohort != ROOT
    return CohortLife(
        bundle=moment.bundle,
        id=cohort,
        began_s=moment.time_s,
        adaptation=moment.adaptation if began else None,
        round=moment.round if began else None,
        ended_s=None,
        ended_adaptation=None,
        ended_round=None,
        ended_why=None,
        into=None,
    )


def named(facts: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    """Statistics with gateways named by their ids instead of their node ids, in their sentence too."""

    def value(key: str, content: Any) -> Any:
        if key == "sentence":
            return re.sub(r"\d+", lambda found: names.get(int(found[0]), found[0]), str(content))
        if isinstance(content, dict):
            return {name: value(name, inner) for name, inner in content.items()}
        return names.get(content, content) if key == "client" and isinstance(content, int) else content

    return {key: value(key, content) for key, content in facts.items()}
