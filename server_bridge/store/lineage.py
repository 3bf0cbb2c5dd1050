"""Which cohorts there were, and who came from where, why, when, and with which statistics."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from server_bridge.store.database import Database
from server_bridge.store.tables import COHORT_MOVES, COHORTS

MOVES_KEPT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortMove:
    """A gateway's change of cohort.

    Attributes:
        source: the cohort it left; ``None`` for one that was in none.
        target: the cohort it entered; ``None`` for one that left the fleet.
        reason: ``newcomer``, ``drifted``, ``recognised``, ``returned``, ``merged``, ``merge-asked`` (by an operator),
            ``left``, ``readmitted``, ``placed`` (by a release that the lineage did not see) or ``abandoned`` (its
            adaptation released nothing).
        statistics: what spoke for it; other gateways are named by their ids.
    """

    time_s: float
    bundle: str
    adaptation: str | None
    round: int | None
    gateway: str
    source: str | None
    target: str | None
    reason: str
    statistics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortLife:
    """A cohort from its beginning to its end.

    Attributes:
        adaptation, round: in which it began; ``None`` for the root and for those found in a release.
        ended_adaptation, ended_round: ``None`` for one that an operator had merged.
        ended_why: ``merged``, ``merge-asked``, ``returned``, ``emptied`` or ``abandoned``; ``None`` while it lives.
        into: the cohort that it went into.
    """

    bundle: str
    id: str
    began_s: float
    adaptation: str | None
    round: int | None
    ended_s: float | None
    ended_adaptation: str | None
    ended_round: int | None
    ended_why: str | None
    into: str | None


_NEIGHBOURS_NUMBERS = ("similarity", "standard_error")


class LineageTable:
    """Cohorts and moves; a cohort's id is never used again for another one.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, life: CohortLife) -> None:
        """A cohort begins.

        Raises:
            StorageError: the bundle had a cohort of this name before.
        """
        with self._database.write() as connection:
            connection.execute(insert(COHORTS).values(**_columns(life)))

    def end(
        self,
        bundle: str,
        cohort: str,
        why: str,
        now_s: float,
        adaptation: str | None,
        number: int | None,
        into: str | None,
    ) -> None:
        """A cohort ends; one that has ended stays as it was."""
        values = {
            "ended_s": now_s,
            "ended_why": why,
            "ended_adaptation": adaptation,
            "ended_round": number,
            "into": into,
        }
        mine = (COHORTS.c.bundle == bundle, COHORTS.c.id == cohort, COHORTS.c.ended_s.is_(None))
        with self._database.write() as connection:
            connection.execute(update(COHORTS).where(*mine).values(**values))

    def move(self, moves: Sequence[CohortMove]) -> None:
        """Record moves in their order."""
        rows = [{**_columns(move), "statistics": json.dumps(move.statistics, allow_nan=False)} for move in moves]
        with self._database.write() as connection:
            if rows:
                connection.execute(insert(COHORT_MOVES), rows)

    def members(self, bundle: str) -> dict[str, str]:
        """Gateway to cohort as the moves leave it; those that left are not in it."""
        with self._database.read() as connection:
            query = select(COHORT_MOVES).where(COHORT_MOVES.c.id.in_(_latest()), COHORT_MOVES.c.bundle == bundle)
            rows = connection.execute(query.order_by(COHORT_MOVES.c.gateway)).all()
        return {row.gateway: row.target for row in rows if row.target is not None}

    def left(self, bundle: str) -> set[str]:
        """Gateways that were members once, and are not now."""
        with self._database.read() as connection:
            query = select(COHORT_MOVES).where(COHORT_MOVES.c.id.in_(_latest()), COHORT_MOVES.c.bundle == bundle)
            return {row.gateway for row in connection.execute(query).all() if row.target is None}

    def moves(self, *, gateway: str | None = None, bundle: str | None = None) -> list[CohortMove]:
        """Moves, oldest first; of one gateway or one bundle if given."""
        query = select(COHORT_MOVES).order_by(COHORT_MOVES.c.id)
        if gateway is not None:
            query = query.where(COHORT_MOVES.c.gateway == gateway)
        if bundle is not None:
            query = query.where(COHORT_MOVES.c.bundle == bundle)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        with self._database.decoding("cohort_moves"):
            return [_move(row) for row in rows]

    def cohorts(self, bundle: str | None = None) -> list[CohortLife]:
        """Cohorts in the order of their beginning; of one bundle if given."""
        query = select(COHORTS).order_by(COHORTS.c.began_s, COHORTS.c.serial)
        if bundle is not None:
            query = query.where(COHORTS.c.bundle == bundle)
        with self._database.read() as connection:
            return [CohortLife(**_without(row, "serial")) for row in connection.execute(query).all()]

    def trim(self, keep: int = MOVES_KEPT) -> int:
        """Forget the oldest moves beyond ``keep``, but each gateway's last; returns how many."""
        border = select(COHORT_MOVES.c.id).order_by(COHORT_MOVES.c.id.desc()).offset(keep).limit(1)
        with self._database.write() as connection:
            newest = connection.execute(border).scalar()
            if newest is None:
                return 0
            old = (COHORT_MOVES.c.id <= newest, COHORT_MOVES.c.id.not_in(_latest()))
            return connection.execute(delete(COHORT_MOVES).where(*old)).rowcount


def _latest() -> Any:
    return select(func.max(COHORT_MOVES.c.id)).group_by(COHORT_MOVES.c.bundle, COHORT_MOVES.c.gateway)


def _columns(record: CohortLife | CohortMove) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


def _without(row: Row[Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in row._mapping.items() if key != name}


def _move(row: Row[Any]) -> CohortMove:
    return CohortMove(**{**_without(row, "id"), "statistics": _statistics(row)})


def _statistics(row: Row[Any]) -> dict[str, Any]:
    """What was written by :meth:`LineageTable.move`: an object whose neighbours are objects with numbers."""
    facts = json.loads(row.statistics)
    neighbours = [facts.get("own"), facts.get("other")] if isinstance(facts, dict) else [facts]
    numbers = [each.get(key) for each in neighbours if isinstance(each, dict) for key in _NEIGHBOURS_NUMBERS]
    whole = isinstance(facts, dict) and all(each is None or isinstance(each, dict) for each in neighbours)
    if not whole or not all(number is None or isinstance(number, int | float) for number in numbers):
        raise ValueError(f"statistics of move {row.id} of gateway {row.gateway}: {row.statistics[:100]}")
    return dict(facts)
