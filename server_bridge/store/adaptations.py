"""Adaptations and their rounds: enough to go on after a kill in any round."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import ADAPTATIONS, ROUNDS

RUNNING = "running"
DONE = "done"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A run of rounds.

    Attributes:
        base: digest of the weights each cohort began with, by cohort.
        state: digest of the blob with the strategy's state after ``rounds_done`` rounds; of one that
            is done, with what the next needs to know.
        attempts: rounds in a row that nobody answered.
    """

    id: str
    bundle: str
    strategy: str
    status: str
    rounds: int
    rounds_done: int
    attempts: int
    started_s: float
    ended_s: float | None
    reason: str
    base: dict[str, str]
    state: str | None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One pass: who was asked, who answered, who failed and why, whose update was shortened, and what came of it.

    ``round`` counts from 1, ``attempt`` from 1 within it. ``weights`` are blob digests by cohort.
    """

    adaptation: str
    round: int
    attempt: int
    started_s: float
    ended_s: float
    replied: list[str]
    failed: dict[str, str]
    drifted: list[str]
    cohorts: dict[str, str]
    weights: dict[str, str]
    metrics: dict[str, float]
    noted: dict[str, str] = field(default_factory=dict)


class AdaptationTable:
    """Adaptations by id.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, adaptation: Adaptation) -> None:
        """Record a running adaptation."""
        row = {
            "id": adaptation.id,
            "bundle": adaptation.bundle,
            "strategy": adaptation.strategy,
            "status": adaptation.status,
            "rounds": adaptation.rounds,
            "rounds_done": adaptation.rounds_done,
            "attempts": adaptation.attempts,
            "started_s": adaptation.started_s,
            "reason": adaptation.reason,
            "base": json.dumps(adaptation.base),
            "state": adaptation.state,
        }
        with self._database.write() as connection:
            connection.execute(insert(ADAPTATIONS).values(**row))

    def commit_round(self, record: RoundRecord, state: str) -> None:
        """A round that counted: its record, and the strategy's state after it."""
        values = {"rounds_done": record.round, "attempts": 0, "state": state}
        self._round(record, values)

    def record_failed_round(self, record: RoundRecord) -> None:
        """A round that nobody answered usably; the strategy's state stays."""
        self._round(record, {"attempts": record.attempt})

    def end(self, adaptation: str, status: str, reason: str, now_s: float, memory: str | None = None) -> None:
        """Mark an adaptation as done or failed.

        Args:
            adaptation: its id.
            status: ``DONE`` or ``FAILED``.
            reason: why.
            now_s: seconds since 1970.
            memory: digest of the blob that the next adaptation begins with.
        """
        values = {"status": status, "reason": reason, "ended_s": now_s, "state": memory}
        with self._database.write() as connection:
            connection.execute(update(ADAPTATIONS).where(ADAPTATIONS.c.id == adaptation).values(**values))

    def running(self) -> Adaptation | None:
        """The adaptation that has not ended, if any."""
        with self._database.read() as connection:
            row = connection.execute(select(ADAPTATIONS).where(ADAPTATIONS.c.status == RUNNING)).first()
        with self._database.decoding("adaptations"):
            return None if row is None else _adaptation(row)

    def memories(self) -> dict[str, str]:
        """By bundle, the digest of what its newest adaptation that is done left for the next, if it left anything.

        The blob may be gone: it is no part of a store that was restored.
        """
        query = select(ADAPTATIONS).where(ADAPTATIONS.c.status == DONE).order_by(ADAPTATIONS.c.ended_s)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        newest = {row.bundle: row.state for row in rows}
        return {bundle: state for bundle, state in newest.items() if state is not None}

    def all(self) -> list[Adaptation]:
        """Every adaptation in the order of their start."""
        with self._database.read() as connection:
            rows = connection.execute(select(ADAPTATIONS).order_by(ADAPTATIONS.c.started_s, ADAPTATIONS.c.id)).all()
        with self._database.decoding("adaptations"):
            return [_adaptation(row) for row in rows]

    def last_ended_s(self) -> float | None:
        """When the last adaptation ended (wall clock, seconds)."""
        with self._database.read() as connection:
            found = connection.execute(select(func.max(ADAPTATIONS.c.ended_s))).scalar()
        return None if found is None else float(found)

    def rounds(self, adaptation: str) -> list[RoundRecord]:
        """The rounds of an adaptation, every attempt."""
        with self._database.read() as connection:
            query = select(ROUNDS).where(ROUNDS.c.adaptation == adaptation).order_by(ROUNDS.c.round, ROUNDS.c.attempt)
            rows = connection.execute(query).all()
        with self._database.decoding("rounds"):
            return [_round(row) for row in rows]

    def latest_round(self) -> RoundRecord | None:
        """The last round that was committed, of any adaptation."""
        query = (
            select(ROUNDS)
            .join(ADAPTATIONS, ADAPTATIONS.c.id == ROUNDS.c.adaptation)
            .where(ROUNDS.c.round <= ADAPTATIONS.c.rounds_done)
            .order_by(ROUNDS.c.ended_s.desc(), ROUNDS.c.round.desc(), ROUNDS.c.attempt.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        with self._database.decoding("rounds"):
            return None if row is None else _round(row)

    def _round(self, record: RoundRecord, values: Mapping[str, Any]) -> None:
        body = {
            "replied": record.replied,
            "failed": record.failed,
            "drifted": record.drifted,
            "cohorts": record.cohorts,
            "weights": record.weights,
            "metrics": record.metrics,
            "noted": record.noted,
        }
        row = {
            "adaptation": record.adaptation,
            "round": record.round,
            "attempt": record.attempt,
            "started_s": record.started_s,
            "ended_s": record.ended_s,
            "body": json.dumps(body),
        }
        with self._database.write() as connection:
            upsert(connection, ROUNDS, row)
            connection.execute(update(ADAPTATIONS).where(ADAPTATIONS.c.id == record.adaptation).values(**values))


def _adaptation(row: Row[Any]) -> Adaptation:
    return Adaptation(
        id=row.id,
        bundle=row.bundle,
        strategy=row.strategy,
        status=row.status,
        rounds=row.rounds,
        rounds_done=row.rounds_done,
        attempts=row.attempts,
        started_s=row.started_s,
        ended_s=row.ended_s,
        reason=row.reason,
        base=json.loads(row.base),
        state=row.state,
    )


def _round(row: Row[Any]) -> RoundRecord:
    body = json.loads(row.body)
    return RoundRecord(
        adaptation=row.adaptation,
        round=row.round,
        attempt=row.attempt,
        started_s=row.started_s,
        ended_s=row.ended_s,
        **body,
    )
