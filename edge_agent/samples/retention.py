"""How long a stored sample stays, and where."""

from dataclasses import dataclass

from edge_agent.link.database import Database, Row
from edge_agent.samples.join import count
from edge_agent.samples.record import Part
from edge_agent.samples.reservoir import Leaving, Reservoir
from edge_agent.samples.tables import Stage, last_number, raise_number

_PASSED = "passed"
_Place = tuple[int, Part]
_LEAVING = "seq, id, part, layout, coalesce(task, ''), label, arrival IS NOT NULL FROM sample"


@dataclass(frozen=True, slots=True)
class Room:
    """How many samples each part of the store may hold.

    Attributes:
        recent: the newest insertions, whatever they are; at least 1.
        reservoir: older labelled ones of the train and proof parts.
        unlabelled: of the train part, whose label did not come in time; the newest.
    """

    recent: int
    reservoir: int
    unlabelled: int

    @property
    def total(self) -> int:
        """Of all parts."""
        return self.recent + self.reservoir + self.unlabelled

    def within(self, most: int) -> "Room":
        """The same shares of at most ``most`` samples."""
        if self.total <= most:
            return self
        share = most / self.total
        return Room(max(1, int(self.recent * share)), int(self.reservoir * share), int(self.unlabelled * share))


class Retention:
    """Moves samples on when they leave the recent part or waited too long for their label.

    Every method joins the caller's transaction.

    Args:
        label_wait_s: a sample without a label for so long is not waited for: one of the train part moves to the
            unlabelled ones, where a later label still finds it; any other is dropped.
    """

    def __init__(self, db: Database, reservoir: Reservoir, room: Room, *, label_wait_s: float) -> None:
        self._db = db
        self._reservoir = reservoir
        self._room = room
        self._label_wait_s = label_wait_s

    def apply(self, newest: int, now_s: float) -> None:
        """Bring every part within its bound.

        Args:
            newest: the highest insertion number given out.
            now_s: running time.
        """
        last = max(newest - self._room.recent, last_number(self._db, _PASSED))
        unlabelled = [*self._leave(last), *self._give_up_waiting(now_s - self._label_wait_s)]
        self._drop([seq for seq, part in unlabelled if part is not Part.TRAIN])
        self._label_came(last)
        self._set_aside([seq for seq, part in unlabelled if part is Part.TRAIN])

    def _leave(self, last: int) -> list[_Place]:
        """Those up to insertion number ``last`` that were not looked at before; returns the ones without a label."""
        passed = last_number(self._db, _PASSED)
        if last <= passed:
            return []
        rows = self._db.query(
            f"SELECT {_LEAVING} WHERE seq > ? AND seq <= ? AND stage = {Stage.RECENT:d}", (passed, last)
        )
        raise_number(self._db, _PASSED, last)
        count(self._db, "evicted_samples", len(rows))
        self._offer([row for row in rows if row[6]])
        return self._places([(row[0], row[2]) for row in rows if not row[6]])

    def _give_up_waiting(self, before_s: float) -> list[_Place]:
        rows = self._db.query(
            f"SELECT seq, part FROM sample WHERE arrival IS NULL AND stage = {Stage.RECENT:d} AND added_s < ?",
            (before_s,),
        )
        count(self._db, "expired_samples", len(rows))
        return self._places(rows)

    def _label_came(self, last: int) -> None:
        """Unlabelled ones whose label came all the same: recent again, or on to the reservoir."""
        # SQLite would take the index of all labelled samples by itself, and read every one of them at each insertion.
        rows = self._db.query(
            f"SELECT {_LEAVING} INDEXED BY sample_unlabelled WHERE stage = {Stage.UNLABELLED:d} AND arrival IS NOT NULL"
        )
        self._move([row[0] for row in rows if row[0] > last], Stage.RECENT)
        self._offer([row for row in rows if row[0] <= last])

    def _offer(self, rows: list[Row]) -> None:
        with self._db.understood():
            leaving = [Leaving(row[0], row[1], Part(row[2]), row[3], row[4], row[5]) for row in rows]
        if leaving:
            self._reservoir.offer(leaving)

    def _places(self, rows: list[Row]) -> list[_Place]:
        with self._db.understood():
            return [(row[0], Part(row[1])) for row in rows]

    def _set_aside(self, seqs: list[int]) -> None:
        """Keep the newest without a label."""
        if not seqs:
            return
        self._move(seqs, Stage.UNLABELLED)
        of_them = f"stage = {Stage.UNLABELLED:d} AND arrival IS NULL"
        self._db.execute(
            f"DELETE FROM sample WHERE {of_them} AND seq <="
            f" (SELECT seq FROM sample WHERE {of_them} ORDER BY seq DESC LIMIT 1 OFFSET ?)",
            (self._room.unlabelled,),
        )

    def _move(self, seqs: list[int], stage: Stage) -> None:
        self._db.execute_many(f"UPDATE sample SET stage = {stage:d} WHERE seq = ?", [(seq,) for seq in seqs])

    def _drop(self, seqs: list[int]) -> None:
        self._db.execute_many("DELETE FROM sample WHERE seq = ?", [(seq,) for seq in seqs])
