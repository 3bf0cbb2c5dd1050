"""How long a stored sample stays, and where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.database import Database
from edge_agent.samples.chunk import PART_NUMBERS, PARTS, Chunk
from edge_agent.samples.join import count
from edge_agent.samples.older import Kept, Older
from edge_agent.samples.recent import Recent
from edge_agent.samples.record import Part
from edge_agent.samples.reservoir import Drawn, Leaving, Reservoir
from edge_agent.samples.split import hashes_of
from edge_agent.samples.tables import Stage

_TRAIN = PART_NUMBERS[Part.TRAIN]
WHOLE_SHARE = 1 / 8
"""A chunk that is no larger than this share of the recent part leaves it whole: its features are read once."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many samples each part of the store may hold.

    Attributes:
        recent: the newest insertions, whatever they are; at least 1. Up to `WHOLE_SHARE` of it leave early, so that
            a chunk leaves in one go.
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

    def __init__(
        self, db: Database, recent: Recent, older: Older, reservoir: Reservoir, room: Room, *, label_wait_s: float
    ) -> None:
        self._db = db
        self._recent = recent
        self._older = older
        self._reservoir = reservoir
        self._room = room
        self._label_wait_s = label_wait_s

    def apply(self, newest: int, now_s: float) -> None:
        """Bring every part within its bound.

        Args:
            newest: the highest insertion number given out.
            now_s: running time.
        """
        last = newest - self._room.recent
        if last > self._recent.passed:
            last = max(last, self._recent.end_of(last, int(self._room.recent * WHOLE_SHARE)) - 1)
        last = max(last, self._recent.passed)
        expired = self._expired(now_s - self._label_wait_s)
        leaving = self._leave(last) if last > self._recent.passed else []
        waiting = {*leaving, *expired}
        unlabelled = sorted(seq for seq in waiting if self._is_train(seq))
        self._label_came(last)
        self._recent.move([seq for seq in waiting.difference(unlabelled) if seq > last], Stage.GONE)
        self._recent.move([seq for seq in unlabelled if seq > last], Stage.UNLABELLED)
        if last > self._recent.passed:
            self._keep_unlabelled(last)
            self._recent.leave(last)
        if unlabelled:
            self._prune()

    def _leave(self, last: int) -> list[int]:
        """Offer those up to insertion number ``last`` to the reservoir; returns the ones without a label."""
        offered: list[Leaving] = []
        unlabelled: list[int] = []
        left = 0
        for chunk, rows in self._recent.reaching(last):
            rows = rows[chunk.stages[rows] == Stage.RECENT]
            left += len(rows)
            has_label = chunk.arrivals[rows] > 0
            if has_label.any():
                offered.append(_leaving(chunk, rows[has_label]))
            unlabelled += (chunk.first + rows[~has_label]).tolist()
        count(self._db, "evicted_samples", left)
        if offered:
            self._reservoir.offer(offered, self._admit)
        return unlabelled

    def _expired(self, before_s: float) -> list[int]:
        """Insertion numbers of those that have waited for their label since before then."""
        expired: list[int] = []
        for chunk in self._recent.chunks:
            if chunk.oldest_s >= before_s:
                continue
            rows = self._recent.alive(chunk)
            rows = rows[(chunk.stages[rows] == Stage.RECENT) & (chunk.arrivals[rows] == 0)]
            added_s = chunk.added_s[rows]
            chunk.oldest_s = float(added_s.min(initial=np.inf, where=added_s >= before_s))
            expired += (chunk.first + rows[added_s < before_s]).tolist()
        count(self._db, "expired_samples", len(expired))
        return expired

    def _is_train(self, seq: int) -> bool:
        found = self._recent.stored(seq)
        return found is not None and found[0].parts[found[1]] == _TRAIN

    def _label_came(self, last: int) -> None:
        """Unlabelled ones whose label came all the same: recent again, or on to the reservoir."""
        recent, self._recent.came = self._recent.came, []
        older, self._older.came = self._older.came, []
        if not recent and not older:
            return
        self._recent.move([seq for seq in recent if seq > last], Stage.RECENT)
        with self._db.understood():
            offered = [_row_leaving(*row) for row in self._older.leaving(older)]
        for found in (self._recent.stored(seq) for seq in recent if seq <= last):
            offered += [_leaving(found[0], np.array([found[1]]))] if found else []
        if offered:
            taken = self._reservoir.offer(offered, self._admit)
            self._older.delete([seq for seq in older if seq not in taken])

    def _admit(self, drawn: Drawn) -> set[int]:
        """Give those that the reservoir takes a row of their own; returns the ones that could be read."""
        older = [seq for seq in drawn if seq <= self._recent.passed]
        self._older.keep([(*drawn[seq], seq) for seq in older])
        admitted = set(older)
        for chunk, rows in self._by_chunk([seq for seq in drawn if seq > self._recent.passed]):
            kept = self._kept(chunk, rows, Stage.KEPT, drawn)
            self._older.insert(kept)
            admitted.update(one.seq for one in kept)
        return admitted

    def _keep_unlabelled(self, last: int) -> None:
        """Those that leave without a label and are of the train part get a row of their own."""
        for chunk, rows in list(self._recent.reaching(last)):
            rows = rows[(chunk.arrivals[rows] == 0) & (chunk.parts[rows] == _TRAIN)]
            if len(rows):
                self._older.insert(self._kept(chunk, rows, Stage.UNLABELLED, {}))

    def _prune(self) -> None:
        """Keep the newest without a label."""
        recent: list[int] = []
        for chunk in self._recent.chunks:
            if chunk.aside:
                rows = self._recent.alive(chunk)
                rows = rows[(chunk.stages[rows] == Stage.UNLABELLED) & (chunk.arrivals[rows] == 0)]
                chunk.aside = bool(len(rows))
                recent += (chunk.first + rows).tolist()
        surplus = len(recent) + len(self._older.waiting) - self._room.unlabelled
        if surplus > 0:
            oldest = list(islice(self._older.waiting, surplus))
            self._older.delete(oldest)
            self._recent.move(recent[: surplus - len(oldest)], Stage.GONE)

    def _by_chunk(self, seqs: Sequence[int]) -> Iterator[tuple[Chunk, NDArray[np.intp]]]:
        """Recent samples that are stored: chunks, and their rows there."""
        found = [place for seq in seqs if (place := self._recent.stored(seq)) is not None]
        for chunk, places in groupby(sorted(found, key=lambda place: place[0].first + place[1]), key=itemgetter(0)):
            yield chunk, np.array([row for _, row in places])

    def _kept(self, chunk: Chunk, rows: NDArray[np.intp], stage: Stage, drawn: Drawn) -> list[Kept]:
        """Samples of a chunk as they are kept beyond it; none, if it is spoilt."""
        features, outputs = self._recent.features(chunk, rows), self._recent.outputs.of(chunk)
        if features is None or outputs is None:
            return []
        kept = []
        for place, row in enumerate(rows.tolist()):
            seq = chunk.first + row
            stratum, draw = drawn.get(seq, (None, None))
            arrival = int(chunk.arrivals[row]) or None
            kept.append(
                Kept(
                    seq=seq,
                    id=chunk.ids[row],
                    time_s=float(chunk.times[row]),
                    part=PARTS[chunk.parts[row]],
                    layout=chunk.layout,
                    model=chunk.model,
                    added_s=float(chunk.added_s[row]),
                    output=outputs[row].tobytes(),
                    label=chunk.label(row) if arrival else None,
                    arrival=arrival,
                    task=chunk.task(row),
                    stage=stage,
                    stratum=stratum,
                    draw=draw,
                    features=features[place].tobytes(),
                )
            )
        return kept


def _leaving(chunk: Chunk, rows: NDArray[np.intp]) -> Leaving:
    chosen = rows.tolist()
    hashes = hashes_of([chunk.ids[row] for row in chosen]) if chunk.hashes is None else chunk.hashes[rows]
    return Leaving(
        chunk.first + rows,
        chunk.parts[rows],
        chunk.layout,
        [chunk.tasks[row] or "" for row in chosen] if chunk.tasks else [],
        chunk.labels[rows],
        hashes,
    )


def _row_leaving(seq: int, name: str, part: str, layout: int, task: str, label: float) -> Leaving:
    """One sample, from a row of :meth:`Older.leaving`."""
    number = PART_NUMBERS[Part(part)]
    labels = np.array([label], np.float64)
    return Leaving(np.array([seq]), np.array([number], np.uint8), layout, [task], labels, hashes_of([name]))
