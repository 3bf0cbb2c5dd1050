"""A uniform sample of the whole past, in strata: what fine-tuning can rehearse."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

from edge_agent.link.database import Database
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
_SALT = "reservoir_salt"
_SALT_BITS = 48


@dataclass(frozen=True, slots=True)
class Leaving:
    """A labelled sample that leaves the recent part."""

    seq: int
    id: str
    part: Part
    layout: int
    task: str
    label: float | int


@dataclass(frozen=True, slots=True)
class _Stratum:
    number: int
    threshold: int


class Reservoir:
    """Keeps, of the samples that leave the recent part, so many that every one had the same chance.

    A stratum is a part (train, proof), an input layout, a task and a class; a plant that names ever new tasks gets
    one for all beyond the first `TASKS_PARTED`. Every sample draws a number from its
    id. A stratum holds exactly those of all that ever left whose draw is below the stratum's threshold, which
    begins at the end of the range. Over capacity the fullest stratum drops its highest draw, and its threshold
    falls to it. So in a stratum every sample of the past is held with one probability, threshold / range, at
    every moment and for any order of arrivals; a rare class stays whole until the others are down to its size.

    Every method joins the caller's transaction. The same samples give the same reservoir after any restart, for
    the draws depend on nothing but the ids and a salt that the database keeps.

    Args:
        capacity: samples in all parts together; 0 keeps nothing.
        proof_share: of the capacity, for the proof part.
        layout: the active one; samples of others go first.
        classed: whether labels are classes; targets of a regression are one stratum.
        seed: the salt of a new database; None: drawn at random.

    Source: a sample by random keys, Fan, Muller & Rezucha 1962, has the distribution of Vitter 1985, algorithm R;
        thresholds that only fall allow a bound over several strata, whose shares nobody knows beforehand.
    Cost: a hash a sample; a few statements a stratum that is touched.
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
        self._key = self._salt(seed).to_bytes(8, "big")
        for part in self._capacities:
            self._shrink(part)

    def offer(self, rows: Sequence[Leaving], admit: Callable[[Drawn], set[int]]) -> set[int]:
        """Take those whose draw is low enough; returns their insertion numbers.

        Args:
            admit: gives those a row each; returns the ones that it could.
        """
        fit = sorted((row for row in rows if self._capacities.get(row.part, 0) > 0), key=self._place)
        drawn: Drawn = {}
        seen: list[tuple[int, list[int]]] = []
        for place, members in groupby(fit, key=self._place):
            stratum = self._stratum(place)
            draws = [(self._draw(row.id), row.seq) for row in members]
            drawn |= {seq: (stratum.number, draw) for draw, seq in draws if draw < stratum.threshold}
            seen.append((stratum.number, [seq for _, seq in draws]))
        taken = admit(drawn) if drawn else set()
        self._db.execute_many(
            "UPDATE stratum SET seen = seen + ?, held = held + ? WHERE stratum = ?",
            [(len(seqs), len(taken.intersection(seqs)), number) for number, seqs in seen],
        )
        for part in {row.part for row in fit if row.seq in taken}:
            self._shrink(part)
        return taken

    def _shrink(self, part: Part) -> None:
        held = self._db.query("SELECT coalesce(sum(held), 0) FROM stratum WHERE part = ?", (part.value,))
        for _ in range(int(held[0][0]) - self._capacities[part]):
            fullest = self._db.query(
                "SELECT stratum FROM stratum WHERE part = ? AND held > 0"
                " ORDER BY layout = ?, held DESC, stratum LIMIT 1",
                (part.value, self._layout),
            )
            if not fullest:
                return
            self._drop_highest(int(fullest[0][0]))

    def _drop_highest(self, stratum: int) -> None:
        highest = self._db.query(
            f"SELECT seq, draw FROM sample WHERE stage = {Stage.KEPT:d} AND stratum = ? ORDER BY draw DESC LIMIT 1",
            (stratum,),
        )
        if not highest:
            self._db.execute("UPDATE stratum SET held = 0 WHERE stratum = ?", (stratum,))
            return
        seq, draw = highest[0]
        self._older.delete([int(seq)])
        self._db.execute("UPDATE stratum SET held = held - 1, threshold = ? WHERE stratum = ?", (draw, stratum))

    def _stratum(self, place: _Place) -> _Stratum:
        query = "SELECT stratum, threshold FROM stratum WHERE part = ? AND layout = ? AND task = ? AND class = ?"
        rows = self._db.query(query, place)
        if not rows and self._is_beyond(place[2]):
            place = (*place[:2], TASKS_BEYOND, place[3])
            rows = self._db.query(query, place)
        if not rows:
            self._db.execute(
                "INSERT INTO stratum (part, layout, task, class, seen, held, threshold) VALUES (?, ?, ?, ?, 0, 0, ?)",
                (*place, DRAWS - 1),
            )
            rows = self._db.query(query, place)
        return _Stratum(int(rows[0][0]), int(rows[0][1]))

    def _is_beyond(self, task: str) -> bool:
        ((named, known),) = self._db.query(
            "SELECT count(DISTINCT task), coalesce(max(task = ?), 0) FROM stratum", (task,)
        )
        return bool(named >= TASKS_PARTED and not known)

    def _place(self, row: Leaving) -> _Place:
        return row.part.value, row.layout, row.task, int(row.label) if self._classed else ONE_STRATUM

    def _draw(self, sample_id: str) -> int:
        return int.from_bytes(blake2b(sample_id.encode(), digest_size=8, key=self._key).digest(), "big") % (DRAWS - 1)

    def _salt(self, seed: int | None) -> int:
        salt = last_number(self._db, _SALT)
        if salt == 0:
            salt = 1 + (secrets.randbits(_SALT_BITS) if seed is None else seed)
            raise_number(self._db, _SALT, salt)
        return salt
