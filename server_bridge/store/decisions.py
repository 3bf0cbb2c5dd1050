"""Every decision of the bridge with its reason."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from server_bridge.store.database import Database
from server_bridge.store.tables import DECISIONS

DECISIONS_KEPT = 100_000

Fact = str | int | float | bool | None | list[str] | list[int] | dict[str, str] | dict[str, int] | dict[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided (``kind``), why (``reason`` for machines, ``detail`` for people), on which facts."""

    id: int
    time_s: float
    kind: str
    reason: str
    detail: str
    adaptation: str | None
    facts: dict[str, Fact]


class DecisionTable:
    """Decisions in the order they were taken.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        kind: str,
        reason: str,
        detail: str,
        now_s: float,
        *,
        adaptation: str | None = None,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        """Append a decision."""
        row = {
            "time_s": now_s,
            "kind": kind,
            "reason": reason,
            "detail": detail,
            "adaptation": adaptation,
            "facts": json.dumps(dict(facts or {}), separators=(",", ":")),
        }
        with self._database.write() as connection:
            connection.execute(insert(DECISIONS).values(**row))

    def recent(self, *, after_id: int = 0, limit: int = 200) -> list[Decision]:
        """The newest decisions after ``after_id``, oldest of them first."""
        query = select(DECISIONS).where(DECISIONS.c.id > after_id).order_by(DECISIONS.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        with self._database.decoding("decisions"):
            return [
                Decision(row.id, row.time_s, row.kind, row.reason, row.detail, row.adaptation, json.loads(row.facts))
                for row in reversed(rows)
            ]

    def trim(self, keep: int = DECISIONS_KEPT) -> int:
        """Forget the oldest decisions beyond ``keep``; returns how many."""
        newest = select(DECISIONS.c.id).order_by(DECISIONS.c.id.desc()).offset(keep).limit(1)
        with self._database.write() as connection:
            border = connection.execute(newest).scalar()
            if border is None:
                return 0
            return connection.execute(delete(DECISIONS).where(DECISIONS.c.id <= border)).rowcount
