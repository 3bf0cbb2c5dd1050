"""A drift that is known already: a group of drifted clients whose change points to a living cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.gram import BLOCK_COLUMNS, gram_matrix

CohortId = str
Matrix = NDArray[np.float64]
JACKKNIFE_BLOCKS = 32
LEAST_RELIABILITY = 0.25
LEAST_GROUP = 3


@dataclass(frozen=True, slots=True)
class RecognitionRule:
    """When a group of drifted clients joins a living cohort instead of beginning one.

    The group's change is the mean of its members' weights minus what they were sent, less what
    stable clients of the same base show: that is what further training alone does. A cohort's
    direction leads from the same base to the cohort's weights. A returned concept trains towards
    its own model, so the group joins the cohort with the highest cosine if that is, corrected for
    the noise of the group's members, at least ``level``; if the change lies on that cohort's side
    of every other's: the cosine with the difference of their unit directions is at least
    ``margin``; and if both stand ``errors`` standard errors clear of zero. Cohorts that a member
    comes from take no part.

    The defaults are low, since the next round's loss refutes a wrong proposal and nothing mends a
    needless cohort; docs/cohorts.md has what was measured.

    Attributes:
        level: least corrected cosine, of one or two clients.
        margin: least cosine with the difference of unit directions.
        errors: standard errors (jackknife over blocks of parameters) clear of zero.
        group_level: the level of three and more: a wrong proposal takes a round from each of them, and less noise
            excuses a low cosine. Two families of four that leave two cohorts in opposite directions have 0.23 to 0.26
            with each other's (CIFAR-10), recurring concepts 0.33 and more.
    """

    level: float = 0.2
    margin: float = 0.04
    errors: float = 1.0
    group_level: float = 0.3

    def without_trial(self) -> "RecognitionRule":
        """Where nothing will refute a wrong proposal: at least 0.3, 0.1 and two errors."""
        least = max(self.level, 0.3)
        return RecognitionRule(least, max(self.margin, 0.1), max(self.errors, 2.0), max(self.group_level, least))

    def level_of(self, clients: int) -> float:
        """The least corrected cosine of a group of so many."""
        return self.level if clients < LEAST_GROUP else max(self.level, self.group_level)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """How a group of drifted clients moved.

    Attributes:
        base: (d,) what they were sent; their mean if that differs.
        change: (d,) their mean change, less the stable clients'.
        reliability: share of the change's energy that is no noise, in (0, 1]; 1 if not known.
        clients: how many they are.
    """

    base: NDArray[Any]
    change: NDArray[np.float64]
    reliability: float
    clients: int = 1


@dataclass(frozen=True, slots=True)
class Recognition:
    """How well a group's change points to the cohort that it fits best.

    Attributes:
        cohort: that one.
        similarity: corrected cosine of the group's change and the direction to it.
        standard_error: of the similarity.
        second: the cohort that comes nearest to it, if there is another.
        second_similarity: the same for that one.
        margin: least cosine with the difference of unit directions; NaN without another.
        margin_error: its standard error.
        reliability: the group's.
        threshold: the rule's level.
        recognised: whether the group joins.
    """

    cohort: CohortId
    similarity: float
    standard_error: float
    second: CohortId | None
    second_similarity: float
    margin: float
    margin_error: float
    reliability: float
    threshold: float
    recognised: bool

    @property
    def sentence(self) -> str:
        """The decision in words."""
        points = f"the change points to {self.cohort} with a similarity of {self.similarity:.2f}"
        other = f", to {self.second} with {self.second_similarity:.2f}" if self.second is not None else ""
        verdict = "so this drift is known" if self.recognised else "which is not enough to be sure"
        return f"{points}{other}; {self.threshold:.2f} is needed, {verdict}"

    def to_json(self) -> dict[str, Any]:
        """As it is kept with the moves."""
        return {
            "rule": "recognised",
            "cohort": self.cohort,
            "similarity": self.similarity,
            "standard_error": self.standard_error,
            "second": self.second,
            "second_similarity": self.second_similarity,
            "margin": self.margin,
            "reliability": self.reliability,
            "threshold": self.threshold,
            "sentence": self.sentence,
        }


def group_change(
    members: Sequence[NDArray[Any]],
    bases: Sequence[NDArray[Any]],
    stable: Sequence[NDArray[Any]] = (),
    halves: Sequence[float | None] = (),
) -> GroupChange:
    """What a group's members have in common.

    Args:
        members: n trained weights (d,).
        bases: what each was sent.
        stable: changes (d,) of clients that did not drift, from the same bases.
        halves: members' split-half cosines, where known.

    Source: reliability of a mean from the mean pairwise cosine, Spearman-Brown.
    Cost: O(n^2 d) time, O(d) memory beside the input.
    """
    count = len(members)
    base: NDArray[Any] = bases[0]
    if len({id(each) for each in bases}) > 1:
        base = np.asarray(np.mean(bases, axis=0, dtype=np.float64))
    change = sum((np.asarray(m, np.float64) - b for m, b in zip(members, bases, strict=True)), np.zeros(base.size))
    change /= count
    if stable:
        change -= np.mean(stable, axis=0, dtype=np.float64)
    return GroupChange(base, change, _reliability(members, bases, halves), count)


def _reliability(
    members: Sequence[NDArray[Any]], bases: Sequence[NDArray[Any]], halves: Sequence[float | None]
) -> float:
    count = len(members)
    if count == 1:
        half = halves[0] if halves else None
        full = 1.0 if half is None else 2 * half / (1 + half) if half > -1 else 0.0
    else:
        gram = gram_matrix(members, origins=bases)
        lengths = np.sqrt(np.diag(gram))
        scale = np.outer(lengths, lengths)
        cosines = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
        mean = float((cosines.sum() - np.trace(cosines)) / (count * (count - 1)))
        full = count * mean / (1 + (count - 1) * mean) if mean > 0 else 0.0
    return min(1.0, max(LEAST_RELIABILITY, full))


def recognise(
    rule: RecognitionRule, group: GroupChange, cohorts: Mapping[CohortId, NDArray[Any]]
) -> Recognition | None:
    """The cohort that a group's change points to, and whether that is enough to join it.

    Args:
        rule: see there.
        group: how the group moved.
        cohorts: (d,) weights of the cohorts that it may join.

    Returns:
        ``None`` if there is none, or nothing to compare: the group did not move.

    Cost: O(k^2 d) time, O(d) memory for k cohorts.
    """
    names = list(cohorts)
    if not names or not group.change.any():
        return None
    blocks = _products([group.change, *cohorts.values()], group.base)
    whole = blocks.sum(0)
    cosines, others = _cosines(whole)[0, 1:], list(range(len(names)))
    best = int(np.argmax(cosines))
    margins = {k: _margin(whole, best, k) for k in others if k != best}
    second = min(margins, key=lambda k: margins[k], default=None)
    scale = 1.0 / np.sqrt(group.reliability)
    pair = np.ix_([0, 1 + best], [0, 1 + best])
    similarity = scale * float(cosines[best])
    error = scale * _error([_cosines(whole[pair] - b[pair])[0, 1] for b in blocks])
    margin, margin_error = np.nan, np.nan
    if second is not None:
        margin = scale * margins[second]
        trio = np.ix_([0, 1 + best, 1 + second], [0, 1 + best, 1 + second])
        margin_error = scale * _error([_margin(whole[trio] - b[trio], 0, 1) for b in blocks])
    level = rule.level_of(group.clients)
    clear = similarity >= max(level, rule.errors * error)
    apart = second is None or margin >= max(rule.margin, rule.errors * margin_error)
    return Recognition(
        cohort=names[best],
        similarity=min(1.0, similarity),
        standard_error=error,
        second=None if second is None else names[second],
        second_similarity=float("nan") if second is None else min(1.0, scale * float(cosines[second])),
        margin=margin,
        margin_error=margin_error,
        reliability=group.reliability,
        threshold=level,
        recognised=bool(clear and apart),
    )


def _products(rows: Sequence[NDArray[Any]], base: NDArray[Any]) -> Matrix:
    """(blocks, n, n) inner products; the base is taken from all rows but the first."""
    borders = np.linspace(0, base.size, min(JACKKNIFE_BLOCKS, max(base.size, 1)) + 1).astype(int)
    blocks = np.zeros((len(borders) - 1, len(rows), len(rows)))
    for number, (first, last) in enumerate(pairwise(borders)):
        for start in range(first, last, BLOCK_COLUMNS):
            part = slice(start, min(start + BLOCK_COLUMNS, last))
            block = np.stack([row[part] for row in rows]).astype(np.float64)
            block[1:] -= base[part]
            blocks[number] += block @ block.T
    return blocks


def _cosines(gram: Matrix) -> Matrix:
    lengths = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    scale = np.outer(lengths, lengths)
    return np.asarray(np.clip(np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0), -1.0, 1.0))


def _margin(gram: Matrix, best: int, other: int) -> float:
    """Cosine of the change (row 0) and the difference of two unit directions; 0 if these are one."""
    rows = [0, 1 + best, 1 + other]
    cosines = _cosines(gram[np.ix_(rows, rows)])
    between = float(np.sqrt(max(0.0, 2.0 - 2.0 * cosines[1, 2])))
    return float(cosines[0, 1] - cosines[0, 2]) / between if between > 1e-6 else 0.0


def _error(without: Sequence[float]) -> float:
    """Jackknife standard error from the values without each block."""
    values, count = np.asarray(without, np.float64), len(without)
    return float(np.sqrt((count - 1) / count * np.square(values - values.mean()).sum()))
