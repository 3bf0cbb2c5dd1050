"""What outlasts the recent samples, a row each: the reservoir's, and the unlabelled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.database import Database, Row
from edge_agent.samples.record import LabelledRow, Part
from edge_agent.samples.tables import Stage

_COLUMNS = "id, time_s, part, output, bundle, weights, version, cohort, task FROM sample JOIN model USING (model)"
_PARTS = {part.value: part for part in Part}
_SEQS_A_QUERY = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """A sample that gets a row of its own.

    Attributes:
        label, arrival: None where no label has come.
        stratum, draw: of the reservoir's.
    """

    seq: int
    id: str
    time_s: float
    part: Part
    layout: int
    model: int
    added_s: float
    output: bytes
    label: float | int | None
    arrival: int | None
    task: str | None
    stage: Stage
    stratum: int | None
    draw: int | None
    features: bytes


class Older:
    """Rows of samples that are not recent; usable inside the caller's transactions only.

    Attributes:
        seqs: insertion number by id.
        waiting: id by insertion number, in order, of those whose label has not come.
        came: insertion numbers of those whose label came late, until they are moved on.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.load()

    def load(self) -> None:
        """Read which there are."""
        rows = self._db.query("SELECT seq, id, stage, arrival FROM sample ORDER BY seq")
        self.seqs: dict[str, int] = {row[1]: row[0] for row in rows}
        self._ids: dict[int, str] = {row[0]: row[1] for row in rows}
        unlabelled = [row for row in rows if row[2] == Stage.UNLABELLED]
        self.waiting: dict[int, str] = {row[0]: row[1] for row in unlabelled if row[3] is None}
        self.came: list[int] = [row[0] for row in sorted((row for row in unlabelled if row[3]), key=lambda row: row[3])]

    def insert(self, kept: Sequence[Kept]) -> None:
        """New rows, in the order of insertion."""
        self._db.execute_values(
            "INSERT INTO sample (seq, id, time_s, part, layout, model, added_s, output, label, arrival, task, stage,"
            " stratum, draw)",
            [
                (
                    one.seq,
                    one.id,
                    one.time_s,
                    one.part.value,
                    one.layout,
                    one.model,
                    one.added_s,
                    one.output,
                    one.label,
                    one.arrival,
                    one.task,
                    int(one.stage),
                    one.stratum,
                    one.draw,
                )
                for one in kept
            ],
        )
        self._db.execute_values("INSERT INTO features", [(one.seq, one.features) for one in kept])
        for one in kept:
            self.seqs[one.id], self._ids[one.seq] = one.seq, one.id
            if one.arrival is None:
                self.waiting[one.seq] = one.id

    def keep(self, kept: Sequence[tuple[int, int, int]]) -> None:
        """Rows that are the reservoir's from now on: (stratum, draw, insertion number) each."""
        self._db.execute_many(f"UPDATE sample SET stage = {Stage.KEPT:d}, stratum = ?, draw = ? WHERE seq = ?", kept)

    def delete(self, seqs: Sequence[int]) -> None:
        """Rows that are not kept; unknown numbers are passed over."""
        there = [seq for seq in seqs if seq in self._ids]
        for portion in _portions(there):
            self._db.execute(f"DELETE FROM sample WHERE seq IN ({_marks(portion)})", portion)
        for seq in there:
            name = self._ids.pop(seq)
            self.waiting.pop(seq, None)
            if self.seqs.get(name) == seq:
                del self.seqs[name]

    def join(self, numbered: Sequence[tuple[int, int, float | int]]) -> list[LabelledRow]:
        """Give rows their labels: (arrival number, insertion number, label) each; what they are now, in that order."""
        if not numbered:
            return []
        self._db.execute_many("UPDATE sample SET arrival = ?1, label = ?3 WHERE seq = ?2", numbered)
        for _, seq, _ in numbered:
            self.waiting.pop(seq, None)
            self.came.append(seq)
        rows = [row for entry in numbered for row in self._select("arrival = ?", (entry[0],))]
        with self._db.understood():
            return [labelled(row) for row in rows]

    def since(self, arrival: int, limit: int) -> list[LabelledRow]:
        """Rows with an arrival number above ``arrival``, in order, at most ``limit``."""
        rows = self._select("arrival > ? ORDER BY arrival LIMIT ?", (arrival, limit))
        with self._db.understood():
            return [labelled(row) for row in rows]

    def named(self, seq: int) -> tuple[str, str | None]:
        """Id and task of a sample."""
        name, task = self._db.query("SELECT id, task FROM sample WHERE seq = ?", (seq,))[0]
        return str(name), task

    def leaving(self, seqs: Sequence[int]) -> list[Row]:
        """Insertion number, id, part, layout, task or "", label."""
        rows: list[Row] = []
        for portion in _portions(seqs):
            rows += self._db.query(
                "SELECT seq, id, part, layout, coalesce(task, ''), label FROM sample"
                f" WHERE seq IN ({_marks(portion)})"
                " ORDER BY arrival",
                portion,
            )
        return rows

    def _select(self, where: str, parameters: Sequence[int]) -> list[Row]:
        return self._db.query(f"SELECT arrival, label, {_COLUMNS} WHERE {where}", parameters)


def labelled(row: Row) -> LabelledRow:
    """From the columns of a query."""
    arrival, label, sample_id, time_s, part, output, bundle, weights, version, cohort, task = row
    made: NDArray[np.float32] = np.frombuffer(output, dtype="<f4")
    return LabelledRow(arrival, sample_id, time_s, _PARTS[part], made, label, bundle, weights, version, cohort, task)


def _portions(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    return (seqs[start : start + _SEQS_A_QUERY] for start in range(0, len(seqs), _SEQS_A_QUERY))


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
