"""Late labels meet their samples."""

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from types import MappingProxyType

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.link.database import Database
from edge_agent.samples.joined import Joined
from edge_agent.samples.older import Older
from edge_agent.samples.recent import Recent
from edge_agent.samples.record import ID_CHARS, Label, LabelledRow
from edge_agent.samples.tables import ARRIVAL, take_numbers

EARLY_LABELS = 10_000
_LARGEST = float(np.finfo(np.float32).max)
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
        recent: Recent,
        older: Older,
        *,
        classes: int | None,
        task_classes: Mapping[str, int] = MappingProxyType({}),
        ignored: int | None = None,
    ) -> None:
        self._db = db
        self._recent = recent
        self._older = older
        self._classes = classes
        self._ignored = ignored
        self._task_classes = task_classes
        self._most_classes = classes if classes is None else max(classes, *task_classes.values(), 0)
        self.load()

    def load(self) -> None:
        """Read which labels wait for their samples."""
        self._early: set[str] = {row[0] for row in self._db.query("SELECT id FROM early_label")}

    def arrive(self, labels: Sequence[Label], now_s: float) -> list[LabelledRow]:
        """Join what can be joined now; the rest waits, or is refused."""
        ids, values = self._valid(labels)
        if not ids:
            return []
        seqs = self._numbers(ids)
        known = np.flatnonzero(seqs)
        fresh = _first_of_each(known[self._is_open(seqs[known])], seqs)
        repeated = len(known) - len(fresh)
        if len(known) < len(ids):
            repeated += self._wait([(ids[place], values[place]) for place in np.flatnonzero(seqs == 0).tolist()], now_s)
        count(self._db, "repeated_labels", repeated)
        return self._join(seqs[fresh], values[fresh], np.full(len(fresh), self._classes is not None))

    def meet(self, first: int, ids: Sequence[str]) -> list[LabelledRow]:
        """Join the labels that were there before these new samples, numbered from ``first`` on."""
        there = [(first + place, name) for place, name in enumerate(ids) if name in self._early] if self._early else []
        if not there:
            return []
        waiting: list[tuple[int, int, float | int]] = []
        for seq, name in there:
            waiting += [
                (place, seq, value)
                for place, value in self._db.query("SELECT place, value FROM early_label WHERE id = ?", (name,))
            ]
            self._early.discard(name)
        self._db.execute_many("DELETE FROM early_label WHERE place = ?", [(place,) for place, _, _ in waiting])
        ordered = [(seq, value) for _, seq, value in sorted(waiting)]
        return self._join(
            np.array([seq for seq, _ in ordered], np.int64),
            np.array([value for _, value in ordered], np.float64),
            np.array([isinstance(value, int) for _, value in ordered], np.bool_),
        )

    def expire(self, before_s: float) -> None:
        """Drop early labels that have waited since before then."""
        if not self._early:
            return
        dropped = self._db.execute("DELETE FROM early_label WHERE added_s < ?", (before_s,))
        self._dropped(dropped)

    def since(self, arrival: int, limit: int) -> list[LabelledRow]:
        """The labelled samples after an arrival number, in order."""
        rows = [*self._older.since(arrival, limit), *self._recent.since(arrival, limit)]
        rows.sort()
        return rows[:limit]

    def _valid(self, labels: Sequence[Label]) -> tuple[Sequence[str], NDArray[np.float64]]:
        if not labels:
            return [], np.zeros(0)
        ids: Sequence[str]
        values: Sequence[float]
        ids, values = zip(*labels, strict=True)
        numbers = np.array(values, np.float64)
        fit = np.abs(numbers) <= _LARGEST
        if self._most_classes is not None:
            fit &= (numbers >= 0) & (numbers < self._most_classes) & (numbers == np.floor(numbers))
        lengths = list(map(len, ids))
        if min(lengths) < 1 or max(lengths) > ID_CHARS:
            fit &= np.array([1 <= length <= ID_CHARS for length in lengths])
        if fit.all():
            return ids, numbers
        ignored = np.zeros(len(ids), np.bool_) if self._ignored is None else numbers == self._ignored
        self._refuse(labels, np.flatnonzero(~fit & ~ignored))
        fit &= ~ignored
        return list(compress(ids, fit.tolist())), numbers[fit]

    def _refuse(self, labels: Sequence[Label], places: NDArray[np.intp]) -> None:
        if len(places):
            first = labels[int(places[0])]
            _log.warning("labels_refused", count=len(places), id=first.id[:ID_CHARS], value=first.value)
            count(self._db, "refused_labels", len(places))

    def _numbers(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) insertion numbers; 0: such a sample is not stored."""
        recent, older = self._recent.places, self._older.seqs
        if not older:
            return np.fromiter(map(recent.get, ids, repeat(0)), np.int64, len(ids))
        return np.array([recent.get(name) or older.get(name, 0) for name in ids], np.int64)

    def _is_open(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether no label has come for these stored samples."""
        is_open = np.empty(len(seqs), np.bool_)
        recent = seqs > self._recent.passed
        is_open[recent] = self._recent.is_open(seqs[recent])
        is_open[~recent] = [seq in self._older.waiting for seq in seqs[~recent].tolist()]
        return is_open

    def _wait(self, labels: Sequence[tuple[str, float]], now_s: float) -> int:
        """Keep labels whose sample is still to come; how many of them are repeated."""
        kind = float if self._classes is None else int
        kept = self._db.execute_many(
            "INSERT OR IGNORE INTO early_label (id, value, added_s) VALUES (?, ?, ?)",
            [(name, kind(value), now_s) for name, value in labels],
        )
        if kept > 0:
            self._early.update(name for name, _ in labels)
            dropped = self._db.execute(
                "DELETE FROM early_label WHERE place <= (SELECT max(place) FROM early_label) - ?", (EARLY_LABELS,)
            )
            self._dropped(dropped)
        return len(labels) - max(kept, 0)

    def _dropped(self, labels: int) -> None:
        if labels > 0:
            count(self._db, "unmatched_labels", labels)
            self.load()

    def _join(
        self, seqs: NDArray[np.int64], values: NDArray[np.float64], whole: NDArray[np.bool_]
    ) -> list[LabelledRow]:
        """Give samples their labels, in this order."""
        if self._task_classes and self._classes is not None:
            fit = self._of_their_tasks(seqs, values)
            seqs, values, whole = seqs[fit], values[fit], whole[fit]
        n = len(seqs)
        if not n:
            return []
        first = self._recent.numbers.take(ARRIVAL, n)
        joined = Joined(np.arange(first, first + n), seqs, values, whole)
        recent = seqs > self._recent.passed
        if recent.all():
            return self._recent.join(joined)
        rows = [*self._recent.join(joined.only(recent)), *self._older.join(joined.only(~recent).entries())]
        rows.sort()
        return rows

    def _of_their_tasks(self, seqs: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(n,) whether a label is a class of its sample's task; those that are not are counted as refused."""
        fit = np.ones(len(seqs), np.bool_)
        for place, (seq, value) in enumerate(zip(seqs.tolist(), values.tolist(), strict=True)):
            name, task = self._named(seq)
            if value >= self._task_classes.get(task or "", self._classes or 0):
                fit[place] = False
                _log.warning("labels_refused", count=1, id=name, value=int(value), task=task)
        count(self._db, "refused_labels", int((~fit).sum()))
        return fit

    def _named(self, seq: int) -> tuple[str, str | None]:
        """Id and task of a stored sample."""
        if seq <= self._recent.passed:
            return self._older.named(seq)
        found = self._recent.stored(seq)
        if found is None:
            raise LookupError(f"sample {seq} is not stored")
        chunk, row = found
        return chunk.ids[row], chunk.task(row)


def _first_of_each(places: NDArray[np.intp], seqs: NDArray[np.int64]) -> NDArray[np.intp]:
    """Those places at which an insertion number comes first; `numpy.unique` would load modules for 60 ms."""
    numbers = seqs[places].tolist()
    if len(set(numbers)) == len(numbers):
        return places
    first = dict(zip(reversed(numbers), reversed(places.tolist()), strict=True))
    return np.array(sorted(first.values()), np.intp)


def count(db: Database, name: str, more: int) -> None:
    """Add to a running count; inside a transaction."""
    if more > 0:
        take_numbers(db, name, more)
