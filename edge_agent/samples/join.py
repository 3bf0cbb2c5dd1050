"""Late labels meet their samples."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import structlog

from edge_agent.link.database import Database, Row
from edge_agent.samples.record import ID_CHARS, Label, LabelledRow, Part
from edge_agent.samples.tables import take_numbers

ARRIVAL = "arrival"
EARLY_LABELS = 10_000
_IDS_A_QUERY = 500
_LARGEST = float(np.finfo(np.float32).max)
_COLUMNS = "id, time_s, part, output, bundle, weights, version, cohort, task FROM sample JOIN model USING (model)"
_PARTS = {part.value: part for part in Part}
_log = structlog.get_logger(__name__)


class LabelJoin:
    """Joins labels to stored samples, in the order in which they arrive. Every method joins the caller's transaction.

    The first valid label of a sample stands; later ones are counted. A label before its sample
    waits in a bounded table.

    Args:
        classes: class numbers 0..classes-1 are valid; None: every number that is finite as float32.
        task_classes: the same for the samples of some tasks.
        ignored: a label that stands for none: it is passed over, and another may follow.
    """

    def __init__(
        self,
        db: Database,
        *,
        classes: int | None,
        task_classes: Mapping[str, int] = MappingProxyType({}),
        ignored: int | None = None,
    ) -> None:
        self._db = db
        self._classes = classes
        self._ignored = ignored
        self._task_classes = task_classes
        self._most_classes = classes if classes is None else max(classes, *task_classes.values(), 0)

    def arrive(self, labels: Sequence[Label], now_s: float) -> list[LabelledRow]:
        """Join what can be joined now; the rest waits, or is refused."""
        valid = self._valid(labels)
        known = self._known([label.id for label in valid])
        fresh: dict[str, tuple[int, float | int]] = {}
        early: list[Label] = []
        repeated = 0
        for label in valid:
            stored = known.get(label.id)
            if stored is None:
                early.append(label)
            elif stored[1] is not None or label.id in fresh:
                repeated += 1
            else:
                fresh[label.id] = (stored[0], label.value)
        repeated += self._wait(early, now_s)
        count(self._db, "repeated_labels", repeated)
        numbered = self._join(list(fresh.values()))
        by_seq = {row[0]: row[2:] for row in known.values()}
        with self._db.understood():
            return [_labelled((arrival, value, *by_seq[seq])) for arrival, seq, value in numbered]

    def meet(self, seqs: dict[str, int]) -> list[LabelledRow]:
        """Join the labels that were there before these new samples (id to insertion number)."""
        waiting: list[tuple[int, str, float | int]] = []
        for ids in _portions(list(seqs)):
            marks = _marks(ids)
            waiting += self._db.query(f"SELECT place, id, value FROM early_label WHERE id IN ({marks})", ids)
        self._db.execute_many("DELETE FROM early_label WHERE place = ?", [(place,) for place, _, _ in waiting])
        numbered = self._join([(seqs[sample_id], value) for _, sample_id, value in sorted(waiting)])
        return self.since(numbered[0][0] - 1, len(numbered)) if numbered else []

    def expire(self, before_s: float) -> None:
        """Drop early labels that have waited since before then."""
        dropped = self._db.execute("DELETE FROM early_label WHERE added_s < ?", (before_s,))
        count(self._db, "unmatched_labels", dropped)

    def since(self, arrival: int, limit: int) -> list[LabelledRow]:
        """The labelled samples after an arrival number, in order."""
        rows = self._db.query(
            f"SELECT arrival, label, {_COLUMNS} WHERE arrival > ? ORDER BY arrival LIMIT ?", (arrival, limit)
        )
        with self._db.understood():
            return [_labelled(row) for row in rows]

    def _valid(self, labels: Sequence[Label]) -> list[Label]:
        valid: list[Label] = []
        refused: list[Label] = []
        for label in labels:
            if self._ignored is not None and label.value == self._ignored:
                continue
            value = self._value(label)
            if value is None:
                refused.append(label)
            else:
                valid.append(label if value is label.value else Label(label.id, value))
        if refused:
            _log.warning("labels_refused", count=len(refused), id=refused[0].id[:ID_CHARS], value=refused[0].value)
            count(self._db, "refused_labels", len(refused))
        return valid

    def _value(self, label: Label) -> float | int | None:
        number = float(label.value)
        if not abs(number) <= _LARGEST or not 1 <= len(label.id) <= ID_CHARS:
            return None
        if self._most_classes is None:
            return number
        return int(number) if number.is_integer() and 0 <= number < self._most_classes else None

    def _known(self, ids: list[str]) -> dict[str, Row]:
        """Insertion number, arrival number if the label is there, and `_COLUMNS`, by id."""
        known: dict[str, Row] = {}
        for portion in _portions(ids):
            rows = self._db.query(f"SELECT seq, arrival, {_COLUMNS} WHERE id IN ({_marks(portion)})", portion)
            known.update({row[2]: row for row in rows})
        return known

    def _wait(self, labels: list[Label], now_s: float) -> int:
        kept = self._db.execute_many(
            "INSERT OR IGNORE INTO early_label (id, value, added_s) VALUES (?, ?, ?)",
            [(label.id, label.value, now_s) for label in labels],
        )
        if kept > 0:
            dropped = self._db.execute(
                "DELETE FROM early_label WHERE place <= (SELECT max(place) FROM early_label) - ?", (EARLY_LABELS,)
            )
            count(self._db, "unmatched_labels", dropped)
        return len(labels) - max(kept, 0)

    def _join(self, joins: list[tuple[int, float | int]]) -> list[tuple[int, int, float | int]]:
        """Give insertion numbers their labels; (arrival number, insertion number, label) of those that took one."""
        joins = self._of_their_tasks(joins)
        if not joins:
            return []
        first = take_numbers(self._db, ARRIVAL, len(joins))
        numbered = [(first + place, seq, value) for place, (seq, value) in enumerate(joins)]
        self._db.execute_many("UPDATE sample SET arrival = ?1, label = ?3 WHERE seq = ?2", numbered)
        return numbered

    def _of_their_tasks(self, joins: list[tuple[int, float | int]]) -> list[tuple[int, float | int]]:
        """Without those that are no class of their sample's task; they are counted as refused."""
        if not self._task_classes or self._classes is None:
            return joins
        kept = []
        for seq, value in joins:
            ((name, task),) = self._db.query("SELECT id, task FROM sample WHERE seq = ?", (seq,))
            if value < self._task_classes.get(task, self._classes):
                kept.append((seq, value))
            else:
                _log.warning("label_refused", id=name, value=value, task=task)
        count(self._db, "refused_labels", len(joins) - len(kept))
        return kept


def count(db: Database, name: str, more: int) -> None:
    """Add to a running count; inside a transaction."""
    if more > 0:
        take_numbers(db, name, more)


def known_ids(db: Database, ids: list[str]) -> set[str]:
    """Which of these samples are stored."""
    known: set[str] = set()
    for portion in _portions(ids):
        known.update(row[0] for row in db.query(f"SELECT id FROM sample WHERE id IN ({_marks(portion)})", portion))
    return known


def _portions(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + _IDS_A_QUERY] for start in range(0, len(ids), _IDS_A_QUERY)]


def _marks(ids: list[str]) -> str:
    return ",".join("?" * len(ids))


def _labelled(row: Row) -> LabelledRow:
    arrival, label, sample_id, time_s, part, output, bundle, weights, version, cohort, task = row
    return LabelledRow(
        arrival=arrival,
        id=sample_id,
        time_s=time_s,
        part=_PARTS[part],
        output=np.frombuffer(output, dtype="<f4"),
        label=label,
        bundle=bundle,
        weights=weights,
        version=version,
        cohort=cohort,
        task=task,
    )
