"""What operators asked of cohorts: that one go into another; and what became of it."""

from dataclasses import dataclass

from sqlalchemy import Select, delete, insert, select, update

from server_bridge.store.database import Database
from server_bridge.store.tables import COHORT_MERGES

QUEUED = "queued"
MERGED = "merged"
REFUSED = "refused"
MERGES_KEPT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """An operator wants a cohort's members to get another cohort's weights.

    Attributes:
        bundle: of both cohorts.
        gone: the cohort that ends.
        kept: the one that its members go to; its weights stay as they are.
        asked_s: when, seconds since 1970.
        unlike: whether also if their models are not alike.
        status: ``queued``, ``merged`` or ``refused``.
        ended_s: when it was merged or refused.
        outcome: what came of it, in words; ``None`` while it is queued.
    """

    id: int
    bundle: str
    gone: str
    kept: str
    asked_by: str
    asked_s: float
    why: str
    unlike: bool = False
    status: str = QUEUED
    ended_s: float | None = None
    outcome: str | None = None


class MergeTable:
    """Requests in the order in which they were made.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(
        self, bundle: str, gone: str, kept: str, *, asked_by: str, why: str, now_s: float, unlike: bool = False
    ) -> int:
        """Queue a request; returns its number."""
        row = {"bundle": bundle, "gone": gone, "kept": kept, "asked_by": asked_by, "why": why, "unlike": unlike}
        with self._database.write() as connection:
            asked = insert(COHORT_MERGES).values(**row, asked_s=now_s, status=QUEUED)
            return int(connection.execute(asked.returning(COHORT_MERGES.c.id)).scalar_one())

    def end(self, number: int, status: str, outcome: str, now_s: float) -> None:
        """A request is ``merged`` or ``refused``; one that has ended stays as it was."""
        mine = (COHORT_MERGES.c.id == number, COHORT_MERGES.c.status == QUEUED)
        values = {"status": status, "outcome": outcome, "ended_s": now_s}
        with self._database.write() as connection:
            connection.execute(update(COHORT_MERGES).where(*mine).values(**values))

    def queued(self) -> list[MergeRequest]:
        """Those that nobody has taken up yet."""
        return self._read(select(COHORT_MERGES).where(COHORT_MERGES.c.status == QUEUED))

    def all(self) -> list[MergeRequest]:
        """Every request."""
        return self._read(select(COHORT_MERGES))

    def trim(self, keep: int = MERGES_KEPT) -> int:
        """Forget the oldest beyond ``keep`` that have ended; returns how many."""
        ended = COHORT_MERGES.c.status != QUEUED
        newest = select(COHORT_MERGES.c.id).where(ended).order_by(COHORT_MERGES.c.id.desc()).offset(keep).limit(1)
        with self._database.write() as connection:
            border = connection.execute(newest).scalar()
            if border is None:
                return 0
            return connection.execute(delete(COHORT_MERGES).where(ended, COHORT_MERGES.c.id <= border)).rowcount

    def _read(self, query: Select[tuple[object, ...]]) -> list[MergeRequest]:
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(COHORT_MERGES.c.id)).all()
        return [MergeRequest(**row._mapping) for row in rows]
