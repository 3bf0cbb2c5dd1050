"""What the store means, in the plainest form: a list of samples in memory, every rule as it is said."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from edge_agent.samples.record import Part
from edge_agent.samples.split import part_of

RECENT, KEPT, UNLABELLED = "recent", "kept", "unlabelled"
DRAWS = 2**63


@dataclass
class Held:
    """A sample that is stored."""

    seq: int
    id: str
    part: Part
    added_s: float
    stage: str = RECENT
    label: int | None = None
    arrival: int | None = None
    draw: int = 0


@dataclass
class Oracle:
    """The model: the same calls as the store's, and what it should then say.

    Attributes:
        recent, reservoir, unlabelled: how many samples each part may hold.
        strata: in the order in which the first sample of each left; the first gives way in a tie.
    """

    classes: int
    proof_share: float
    recent: int
    reservoir: int
    unlabelled: int
    label_wait_s: float
    seed: int
    held: list[Held] = field(default_factory=list)
    early: dict[str, tuple[int, float]] = field(default_factory=dict)
    thresholds: dict[tuple[Part, int], int] = field(default_factory=dict)
    strata: list[tuple[Part, int]] = field(default_factory=list)
    seqs: int = 0
    arrivals: int = 0
    passed: int = 0
    duplicates: int = 0
    repeated: int = 0
    refused: int = 0
    unmatched: int = 0
    expired: int = 0
    evicted: int = 0

    def add(self, ids: Sequence[str], holdouts: Sequence[bool], finite: Sequence[bool], now_s: float) -> list[str]:
        """Samples; the ids of those whose label was there before, in the order in which the labels came."""
        new = []
        for name, holdout, fit in zip(ids, holdouts, finite, strict=True):
            if self.find(name) is not None:
                self.duplicates += 1
                continue
            self.seqs += 1
            part = part_of(name, None, holdout=holdout, proof_share=self.proof_share)
            new.append(Held(self.seqs, name, part if fit or part is Part.HOLDOUT else Part.UNFIT, now_s))
            self.held.append(new[-1])
        met = sorted((one for one in new if one.id in self.early), key=lambda one: list(self.early).index(one.id))
        for one in met:
            self._join(one, self.early.pop(one.id)[0])
        self._retain(now_s)
        return [one.id for one in met]

    def label(self, labels: Sequence[tuple[str, int]], now_s: float) -> list[str]:
        """Labels; the ids of the samples that they met."""
        met = []
        for name, value in labels:
            one = self.find(name)
            if not 0 <= value < self.classes:
                self.refused += 1
            elif (one is None and name in self.early) or (one is not None and one.label is not None):
                self.repeated += 1
            elif one is None:
                self.early[name] = (value, now_s)
            else:
                self._join(one, value)
                met.append(name)
        late = [name for name, (_, added_s) in self.early.items() if added_s < now_s - self.label_wait_s]
        self.unmatched += len(late)
        for name in late:
            del self.early[name]
        return met

    def find(self, name: str) -> Held | None:
        """A sample that is stored."""
        return next((one for one in self.held if one.id == name), None)

    def stage(self, stage: str) -> list[Held]:
        """The samples at a stage, oldest first."""
        return [one for one in self.held if one.stage == stage]

    def usable(self, part: Part) -> list[str]:
        """What a set of a part takes."""
        return [one.id for one in self.stage(RECENT) if one.part is part and one.label is not None]

    def _join(self, one: Held, value: int) -> None:
        self.arrivals += 1
        one.label, one.arrival = value, self.arrivals

    def _retain(self, now_s: float) -> None:
        last = max(self.seqs - self.recent, self.passed)
        leaving = [one for one in self.stage(RECENT) if one.seq <= last]
        waited = [one for one in self.stage(RECENT) if one.label is None and one.added_s < now_s - self.label_wait_s]
        self.passed = last
        self.evicted += len(leaving)
        self.expired += len(waited)
        self._offer([one for one in leaving if one.label is not None])
        given_up = [one for one in self.held if one in waited or (one in leaving and one.label is None)]
        came = [one for one in self.stage(UNLABELLED) if one.label is not None]
        for one in came:
            one.stage = RECENT
        self._offer([one for one in came if one.seq <= last])
        for one in given_up:
            if one.part is Part.TRAIN:
                one.stage = UNLABELLED
            else:
                self.held.remove(one)
        if any(one.part is Part.TRAIN for one in given_up):
            waiting = [one for one in self.stage(UNLABELLED) if one.label is None]
            for one in waiting[: max(0, len(waiting) - self.unlabelled)]:
                self.held.remove(one)

    def _offer(self, rows: list[Held]) -> None:
        proof = round(self.reservoir * self.proof_share)
        room = {Part.TRAIN: self.reservoir - proof, Part.PROOF: proof}
        for one in sorted(rows, key=lambda one: (one.part.value, one.label)):
            if room.get(one.part, 0) > 0 and _stratum(one) not in self.strata:
                self.strata.append(_stratum(one))
        for one in rows:
            digest = blake2b(one.id.encode(), digest_size=8, key=(self.seed + 1).to_bytes(8, "big")).digest()
            one.draw = int.from_bytes(digest, "big") % (DRAWS - 1)
            if room.get(one.part, 0) > 0 and one.draw < self.thresholds.get(_stratum(one), DRAWS - 1):
                one.stage = KEPT
            else:
                self.held.remove(one)
        for part, most in room.items():
            while len(kept := [one for one in self.stage(KEPT) if one.part is part]) > most:
                sizes = {_stratum(one): sum(_stratum(other) == _stratum(one) for other in kept) for one in kept}
                fullest = [stratum for stratum in sizes if sizes[stratum] == max(sizes.values())]
                stratum = min(fullest, key=self.strata.index)
                highest = max((one for one in kept if _stratum(one) == stratum), key=lambda one: one.draw)
                self.thresholds[stratum] = highest.draw
                self.held.remove(highest)


def _stratum(one: Held) -> tuple[Part, int]:
    assert one.label is not None
    return one.part, one.label
