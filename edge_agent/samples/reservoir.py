"""A uniform sample of the whole past, in strata: what fine-tuning can rehearse."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.database import Database
from edge_agent.samples.chunk import PARTS
from edge_agent.samples.older import Older
from edge_agent.samples.record import Part
from edge_agent.samples.tables import Stage, last_number, raise_number

DRAWS = 2**63
ONE_STRATUM = -1
TASKS_PARTED = 64
"""More names than two bundles can have."""
TASKS_BEYOND = "*"
Drawn = dict[int, tuple[int, int]]
"""Stratum and draw by insertion number."""
_Place = tuple[str, int, str, int]
_PART_VALUES = [part.value for part in PARTS]
_GOLDEN, _MIXED, _LAST_SHIFT = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)), 31
"""Of splitmix64 (Steele, Lea & Flood 2014): as good as random for any numbers that differ. They are hashes already, of
which the split into parts took the lowest for one."""
_SALT = "reservoir_salt"
_SALT_BITS = 48


class Leaving(NamedTuple):
    """Labelled samples of one layout that leave the recent part.

    Attributes:
        seqs: (n,) int64 insertion numbers.
        parts: (n,) uint8, places in ``PARTS``.
        tasks: n entries, "" where a sample names none; empty where none does.
        labels: (n,) float64.
        hashes: (n,) uint64 of the ids (``split.hashes_of``).
    """

    seqs: NDArray[np.int64]
    parts: NDArray[np.uint8]
    layout: int
    tasks: Sequence[str]
    labels: NDArray[np.float64]
    hashes: NDArray[np.uint64]


@dataclass(slots=True)
class _Stratum:
    """What is known of a stratum.

    Attributes:
        held: (minus draw, insertion number) of each sample, a heap.
    """

    number: int
    part: Part
    is_active: bool
    seen: int
    threshold: int
    held: list[tuple[int, int]] = field(default_factory=list)


class Reservoir:
    """Keeps, of the samples that leave the recent part, so many that every one had the same chance.

    A stratum is a part (train, proof), an input layout, a task and a class; a plant that names ever new tasks gets
    one for all beyond the first `TASKS_PARTED`. Every sample draws a number from its
    id. A stratum holds exactly those of all that ever left whose draw is below the stratum's threshold, which
    begins at the end of the range. Over capacity the fullest stratum drops its highest draw, and its threshold
    falls to it. So in a stratum every sample of the past is held with one probability, threshold / range, at
    every moment and for any order of arrivals; a rare class stays whole until the others are down to its size.

    Every method joins the caller's transaction; after one that was rolled back, :meth:`load`. The same samples give
    the same reservoir after any restart, for the draws depend on nothing but the ids and a salt that the database
    keeps.

    Args:
        capacity: samples in all parts together; 0 keeps nothing.
        proof_share: of the capacity, for the proof part.
        layout: the active one; samples of others go first.
        classed: whether labels are classes; targets of a regression are one stratum.
        seed: the salt of a new database; None: drawn at random.

    Source: a sample by random keys, Fan, Muller & Rezucha 1962, has the distribution of Vitter 1985, algorithm R;
        thresholds that only fall allow a bound over several strata, whose shares nobody knows beforehand.
    Cost: a few operations a sample, whose id was hashed when it came; strata and draws of what
        they hold are in memory too, 150 bytes a sample held.
    """

    def __init__(
        self,
        db: Database,
        older: Older,
        *,
        capacity: int,
        proof_share: float,
        layout: int,
        classed: bool,
        seed: int | None = None,
    ) -> None:
        proof = round(capacity * proof_share)
        self._db = db
        self._older = older
        self._capacities = {Part.TRAIN: capacity - proof, Part.PROOF: proof}
        self._layout = layout
        self._classed = classed
        self._offset = self._salt(seed) * _GOLDEN % 2**64
        self.load()
        self._save([stratum for part in self._capacities for stratum in self._shrink(part)])

    def load(self) -> None:
        """Read what the database holds."""
        self._strata: dict[_Place, _Stratum] = {}
        numbered: dict[int, _Stratum] = {}
        columns = "stratum, part, layout, task, class, seen, threshold"
        for number, part, layout, task, label, seen, threshold in self._db.query(f"SELECT {columns} FROM stratum"):
            stratum = _Stratum(number, Part(part), layout == self._layout, seen, threshold)
            self._strata[part, layout, task, label] = numbered[number] = stratum
        kept = f"SELECT stratum, -draw, seq FROM sample WHERE stage = {Stage.KEPT:d}"
        for number, minus_draw, seq in self._db.query(kept):
            if number in numbered:
                numbered[number].held.append((minus_draw, seq))
        for stratum in numbered.values():
            heapify(stratum.held)

    def offer(self, leaving: Sequence[Leaving], admit: Callable[[Drawn], set[int]]) -> set[int]:
        """Take those whose draw is low enough; returns their insertion numbers.

        Args:
            admit: gives those a row each; returns the ones that it could.
        """
        places = [self._places(some) for some in leaving]
        seen = Counter(chain.from_iterable(places))
        strata = {place: self._stratum(place) for place in sorted(seen) if self._capacities.get(Part(place[0]), 0) > 0}
        for place, stratum in strata.items():
            stratum.seen += seen[place]
        drawn = self._drawn(leaving, places, strata)
        taken = admit(drawn) if drawn else set()
        touched = {stratum.number: stratum for stratum in strata.values()}
        for seq in taken:
            number, draw = drawn[seq]
            heappush(touched[number].held, (-draw, seq))
        for part in {touched[drawn[seq][0]].part for seq in taken}:
            touched |= {stratum.number: stratum for stratum in self._shrink(part)}
        self._save(touched.values())
        return taken

    def _drawn(
        self, leaving: Sequence[Leaving], places: Sequence[list[_Place]], strata: dict[_Place, _Stratum]
    ) -> Drawn:
        """Those whose draw is below the threshold of their stratum."""
        thresholds = {place: stratum.threshold for place, stratum in strata.items()}
        drawn: Drawn = {}
        for some, where in zip(leaving, places, strict=True):
            draws = self.draws(some.hashes)
            low = np.flatnonzero(draws < np.fromiter(map(thresholds.get, where, repeat(0)), np.uint64, len(where)))
            for row, seq, draw in zip(low.tolist(), some.seqs[low].tolist(), draws[low].tolist(), strict=True):
                drawn[seq] = strata[where[row]].number, draw
        return drawn

    def _shrink(self, part: Part) -> list[_Stratum]:
        """Bring a part within its capacity; the strata that dropped samples."""
        strata = {stratum.number: stratum for stratum in self._strata.values() if stratum.part is part}
        surplus = sum(len(stratum.held) for stratum in strata.values()) - self._capacities[part]
        sizes = [(one.is_active, -len(one.held), one.number) for one in strata.values() if one.held]
        dropped = _dropped_of(sizes, surplus)
        seqs = []
        for number, samples in dropped.items():
            stratum = strata[number]
            for _ in range(samples):
                minus_draw, seq = heappop(stratum.held)
                stratum.threshold = -minus_draw
                seqs.append(seq)
        self._older.delete(seqs)
        return [strata[number] for number in dropped]

    def _save(self, strata: Iterable[_Stratum]) -> None:
        self._db.execute_many(
            "UPDATE stratum SET seen = ?, held = ?, threshold = ? WHERE stratum = ?",
            [(one.seen, len(one.held), one.threshold, one.number) for one in strata],
        )

    def _stratum(self, place: _Place) -> _Stratum:
        if place not in self._strata and self._is_beyond(place[2]):
            place = (*place[:2], TASKS_BEYOND, place[3])
        if place not in self._strata:
            self._db.execute(
                "INSERT INTO stratum (part, layout, task, class, seen, held, threshold) VALUES (?, ?, ?, ?, 0, 0, ?)",
                (*place, DRAWS - 1),
            )
            number = int(self._db.query("SELECT last_insert_rowid()")[0][0])
            self._strata[place] = _Stratum(number, Part(place[0]), place[1] == self._layout, 0, DRAWS - 1)
        return self._strata[place]

    def _is_beyond(self, task: str) -> bool:
        named = {place[2] for place in self._strata}
        return len(named) >= TASKS_PARTED and task not in named

    def _places(self, some: Leaving) -> list[_Place]:
        """The stratum of each."""
        classes = some.labels.astype(np.int64).tolist() if self._classed else repeat(ONE_STRATUM)
        parts = map(_PART_VALUES.__getitem__, some.parts.tolist())
        return list(zip(parts, repeat(some.layout), some.tasks or repeat(""), classes, strict=False))  # without end

    def draws(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """(n,) what samples draw, by the hashes of their ids: each in [0, ``DRAWS`` - 1)."""
        mixed = hashes + np.uint64(self._offset)
        for shift, factor in _MIXED:
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(_LAST_SHIFT)
        return mixed % np.uint64(DRAWS - 1)

    def _salt(self, seed: int | None) -> int:
        salt = last_number(self._db, _SALT)
        if salt == 0:
            salt = 1 + (secrets.randbits(_SALT_BITS) if seed is None else seed)
            raise_number(self._db, _SALT, salt)
        return salt


def _dropped_of(strata: Sequence[tuple[int, int, int]], surplus: int) -> dict[int, int]:
    """How many samples each stratum drops: one after the other, from the fullest, those of other layouts first.

    Args:
        strata: whether it is of the active layout, minus how many it holds, its number.
        surplus: samples to drop.
    """
    fullest = list(strata)
    heapify(fullest)
    dropped: dict[int, int] = {}
    for _ in range(surplus):
        if not fullest:
            break
        is_active, minus_held, stratum = fullest[0]
        dropped[stratum] = dropped.get(stratum, 0) + 1
        if minus_held < -1:
            heapreplace(fullest, (is_active, minus_held + 1, stratum))
        else:
            heappop(fullest)
    return dropped
