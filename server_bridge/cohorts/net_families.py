"""Which updates of real nets are one family: groups are divided in two as long as the two lie far enough apart."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.division import Gap, Sides, centred, divisions, gap, partitions
from server_bridge.cohorts.evidence import Matrix

Group = NDArray[np.intp]
# How far a good silhouette may stand in for a low similarity across.
SILHOUETTE_WEIGHT = 0.5
# Limits of the score: of two large halves, less for few members and for unequal sides, which the best of
# many candidates finds by chance sooner. Measured, see docs/cohorting.md.
MOST, FEWNESS, UNEVENNESS = 0.57, 0.2, 0.1
# Of a single client among three, and less for the best of more.
SINGLE, SINGLE_UNSURE, SELECTION = 0.25, 0.08, 0.08
# Mean disattenuated similarity below which clients (two, more) that nothing else parts drifted each in its own way.
LEAST_ALIKE_TWO, LEAST_ALIKE = 0.45, 0.5
# Mean similarity below which they did whatever their reliability, as far as updates of one real drift were seen.
LEAST_ALIKE_UNSURE = 0.12
LEAST_RELIABILITY = 0.04
MOST_SIMILARITY, LEAST_SIMILARITY = 1.2, 0.3
# Groups at once that are tried, of so many clients and more: fewer show no three families.
MOST_AT_ONCE, LEAST_CLIENTS = 6, 6


@dataclass(frozen=True, slots=True)
class Divided:
    """Two groups that are other families.

    Attributes:
        sides: (n,) which group each client is in.
        limit: the similarity across at which they would be one.
    """

    sides: Sides
    limit: float

    @property
    def groups(self) -> list[Group]:
        """Row numbers of either."""
        return [np.flatnonzero(~self.sides), np.flatnonzero(self.sides)]


def divide(cosines: Matrix, reliability: NDArray[np.float64] | None) -> Divided | None:
    """The division whose groups lie furthest beyond their limit; ``None`` if none does.

    The score of a division is the relative similarity of its groups (1 for one family whatever the
    noise) less half their silhouette; where reliabilities are known the similarity across, over
    the roots of both, counts as much as the relative one.

    Args:
        cosines: (n, n) of the changes' roots, n >= 3.
        reliability: (n,) share of each change that is not noise; ``None`` if not known.
    """
    margin, found = best_division(cosines, reliability)
    return found if margin > 0 else None


def best_division(
    cosines: Matrix, reliability: NDArray[np.float64] | None, least: int = 1, further: float = 0.0
) -> tuple[float, Divided | None]:
    """The same, however far its groups lie, and how far beyond a limit that is ``further`` off.

    ``None`` if there is no division into groups of ``least`` clients and more.
    """
    apart = centred(cosines)
    best: tuple[float, Divided | None] = (-np.inf, None)
    for sides in divisions(cosines):
        if min(np.count_nonzero(sides), np.count_nonzero(~sides)) < least:
            continue
        similarity, allowed = _score(cosines, apart, reliability, sides)
        allowed -= further
        if allowed - similarity > best[0]:
            across = disattenuated(cosines, reliability, sides, ~sides)
            found = Divided(sides, allowed * (across / similarity if similarity else 1.0))
            best = (allowed - similarity, found)
    return best


def several(cosines: Matrix, reliability: NDArray[np.float64] | None) -> list[Group]:
    """Three and more groups of which any two are other families; none if there are no such.

    A division in two sets mixed groups against each other. Here each pair is judged by itself: of a
    level of the trees the pair that is least apart is joined until all pairs are apart.

    Args:
        cosines, reliability: as for :func:`divide`.
    """
    if len(cosines) < LEAST_CLIENTS:
        return []
    best: tuple[int, float, list[Group]] = (2, 0.0, [])
    for groups in partitions(cosines, MOST_AT_ONCE):
        left, margin = _joined(cosines, reliability, groups)
        if (len(left), margin) > best[:2] and len(left) > 2:
            best = (len(left), margin, left)
    return best[2]


def _joined(cosines: Matrix, reliability: NDArray[np.float64] | None, groups: list[Group]) -> tuple[list[Group], float]:
    while len(groups) > 2:
        margins = [
            (_margin(cosines, reliability, groups[a], groups[b]), a, b) for a, b in combinations(range(len(groups)), 2)
        ]
        least, a, b = min(margins)
        if least > 0:
            return groups, least
        joined = np.sort(np.concatenate([groups[a], groups[b]]))
        groups = [group for number, group in enumerate(groups) if number not in (a, b)] + [joined]
    return groups, 0.0


def _margin(cosines: Matrix, reliability: NDArray[np.float64] | None, left: Group, right: Group) -> float:
    """By how much two groups lie beyond their limit; of two single clients only their reliability tells."""
    rows = np.concatenate([left, right])
    among, known = cosines[np.ix_(rows, rows)], None if reliability is None else reliability[rows]
    sides = np.arange(len(rows)) >= len(left)
    if len(rows) == 2:
        return least_alike(2, known is not None) - disattenuated(among, known, sides, ~sides)
    similarity, allowed = _score(among, centred(among), known, sides)
    return allowed - similarity


def _score(
    cosines: Matrix, apart: Matrix, reliability: NDArray[np.float64] | None, sides: Sides
) -> tuple[float, float]:
    """The similarity of two groups, and the one below which they are two families."""
    between = gap(cosines, apart, sides)
    allowed = limit(sides, reliability is not None) + SILHOUETTE_WEIGHT * between.silhouette
    return _similarity(cosines, reliability, sides, between), allowed


def limit(sides: Sides, reliable: bool) -> float:
    """The score below which two groups are two families.

    Args:
        sides: (n,) the groups.
        reliable: whether reliabilities are known; without them a single client may just be noisier.
    """
    count, smaller = len(sides), int(min(sides.sum(), (~sides).sum()))
    if smaller == 1:
        return float((SINGLE if reliable else SINGLE_UNSURE) - SELECTION * np.log(count / 3.0))
    return float(MOST - FEWNESS / smaller - UNEVENNESS * np.log(count / (2.0 * smaller)))


def disattenuated(cosines: Matrix, reliability: NDArray[np.float64] | None, left: Sides, right: Sides) -> float:
    """Mean similarity of two sets of clients, corrected for noise where that is known: the reliable weigh more."""
    known = np.ones(len(cosines)) if reliability is None else np.sqrt(np.maximum(reliability, LEAST_RELIABILITY))
    pairs = np.outer(left, right) & ~np.eye(len(cosines), dtype=bool)
    return float(cosines[pairs].sum() / np.outer(known, known)[pairs].sum())


def least_alike(clients: int, reliable: bool) -> float:
    """The mean similarity, corrected for noise where that is known, below which so many clients are no family."""
    if not reliable:
        return LEAST_ALIKE_UNSURE
    return LEAST_ALIKE_TWO if clients == 2 else LEAST_ALIKE


def _similarity(cosines: Matrix, reliability: NDArray[np.float64] | None, sides: Sides, between: Gap) -> float:
    if reliability is None:
        return between.relative
    across = min(disattenuated(cosines, reliability, sides, ~sides), MOST_SIMILARITY)
    if min(sides.sum(), (~sides).sum()) > 1:
        return (between.relative + across) / 2.0
    rest = sides if sides.sum() > 1 else ~sides
    return across / max(disattenuated(cosines, reliability, rest, rest), LEAST_SIMILARITY)
