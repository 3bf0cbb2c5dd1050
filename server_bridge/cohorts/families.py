"""Which changes are one family: the rules in their order, and each group with the rule that made it."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.blocks import Similarities, best_split
from server_bridge.cohorts.evidence import Evidence, Matrix
from server_bridge.cohorts.layer_families import divide_by_layer
from server_bridge.cohorts.net_families import disattenuated, divide, least_alike, several
from server_bridge.cohorts.one_family import beyond_one_family
from server_bridge.cohorts.separation import Group, Separation, mean_inside, separate
from server_bridge.cohorts.shared_direction import limit_of, parts_in_common

# Mean similarity, corrected for noise, below which clients that nothing else parts drifted each in its own way.
LEAST_ALIKE = 0.53
MIGHT_BE_ALIKE = 0.65
# Noise of 20 directions scatters reliabilities by 10 and more chance errors at 20,000 parameters.
CALM_ERRORS = 2.0
LEAST_HALF = 0.005  # less reliability would weigh noise by noise
# Changes that share less than this much of their energy, by an upper bound of two errors, share nothing.
NOTHING = 0.06


@dataclass(frozen=True, slots=True)
class Family:
    """A group and why it is one.

    Attributes:
        rows: the members' row numbers, ascending.
        rule: ``nothing-in-common``, ``told-apart``, ``told-apart-in-a-layer``, ``alike``,
            ``less-alike-than-reliable``, ``hardly-alike`` or ``cannot-tell``.
        limit: the similarity at which the decision would have been the other one.
        layer: the number of the layer among the evidence's whose cosines decided; ``None`` for all coordinates.
    """

    rows: Group
    rule: str
    limit: float
    layer: int | None = None


def full_reliability(halves: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of an update's energy that is not noise, from the cosine of its two halves.

    Args:
        halves: (n,) split-half cosines in [-1, 1].

    Returns:
        (n,) in [0.01, 1].

    Source: Spearman 1910 and Brown 1910: 2 r / (1 + r), as the whole has twice the data of a half.
    """
    known = np.clip(halves, LEAST_HALF, 1.0)
    return np.asarray(2.0 * known / (1.0 + known), np.float64)


def find_families(evidence: Evidence, reliability: NDArray[np.float64] | None) -> list[Family]:
    """Group n changes.

    In their order, where coordinates are exchangeable: changes that share nothing are parted; then,
    as long as a split is told from one family by its likelihood and by draws of one family and its
    groups are far enough apart, groups are split; what is left is one family if it is alike enough
    for its reliability. Where that is not known, it stays together. Updates of real nets are divided
    as long as two groups lie far enough apart: by their roots, since by chance alone a few large
    coordinates would decide; if these do not part them, by what one layer shows.

    Args:
        evidence: of the changes, none of them zero.
        reliability: (n,) share of each change that is not noise; ``None`` if not known.

    Returns:
        Families that cover 0 to n - 1.
    """
    found: list[Family] = []
    if evidence.structured:
        everybody = np.arange(len(evidence.cosines))
        return _refine_net(evidence, reliability, everybody, Family(everybody, "cannot-tell", 0.0))
    parts = parts_in_common(evidence.cosines, evidence.chance_errors)
    limit = limit_of(len(evidence.cosines)) * float(np.median(evidence.chance_errors))
    for part in parts:
        rule = "nothing-in-common" if len(parts) > 1 else "cannot-tell"
        rows = np.array(part, np.intp)
        found += _refine(evidence, reliability, rows, Family(rows, rule, limit))
    return found


def _refine_net(
    evidence: Evidence, reliability: NDArray[np.float64] | None, rows: Group, origin: Family
) -> list[Family]:
    """Updates of real nets: divided in two as long as the two lie far enough apart."""
    if len(rows) == 1:
        return [Family(rows, origin.rule, origin.limit)]
    known = None if reliability is None else reliability[rows]
    among = evidence.among(rows)
    told = _told_apart(among.root_cosines, known) or _told_apart_in_layer(among, known)
    if not told:
        return _undivided(among.root_cosines, among.cosines, known, rows)
    families = []
    for part in told:
        group = replace(part, rows=rows[part.rows])
        families += _keep_rule(_refine_net(evidence, reliability, group.rows, group), group)
    return families


def _told_apart(cosines: Matrix, known: NDArray[np.float64] | None) -> list[Family]:
    """Groups that are other families by these cosines; none if there are no such."""
    divided = divide(cosines, known) if len(cosines) > 2 else None
    groups = several(cosines, known)
    if not groups and divided is not None:
        groups = divided.groups
    limit = divided.limit if divided is not None else least_alike(len(cosines), known is not None)
    return [Family(group, "told-apart", limit) for group in groups]


def _told_apart_in_layer(among: Evidence, known: NDArray[np.float64] | None) -> list[Family]:
    """The same by one layer, which must show much more."""
    found = divide_by_layer(among.layer_cosines, known)
    if found is None:
        return []
    limit, layer = found.divided.limit, found.layer
    return [Family(group, "told-apart-in-a-layer", limit, layer) for group in found.divided.groups]


def _undivided(cosines: Matrix, plain: Matrix, known: NDArray[np.float64] | None, rows: Group) -> list[Family]:
    """One family if it is alike enough for its reliability; without that, if nothing shows that it is none.

    Without reliabilities the ``plain`` cosines must be small, too: the roots alone may weigh noise by noise.
    """
    everybody, least = np.ones(len(rows), bool), least_alike(len(rows), known is not None)
    similarity = disattenuated(cosines, known, everybody, everybody)
    if known is None:
        similarity = max(similarity, disattenuated(plain, None, everybody, everybody))
    if similarity < least:
        rule = "hardly-alike" if known is None else "less-alike-than-reliable"
        return [Family(row, rule, least) for row in rows[:, None]]
    return [Family(rows, "cannot-tell" if known is None else "alike", least)]


def _refine(evidence: Evidence, reliability: NDArray[np.float64] | None, rows: Group, origin: Family) -> list[Family]:
    if len(rows) == 1:
        return [Family(rows, origin.rule, origin.limit)]
    similar = _similarities(evidence, None, rows)
    calm = reliability is not None and _is_calm(reliability[rows], similar)
    split = _split(similar, calm)
    if split is None or len(split.groups) == 1:
        if reliability is not None:
            return _by_reliability(_similarities(evidence, reliability, rows), rows)
        return _unknown(similar, rows, split)
    families = []
    for group in split.groups:
        level = mean_inside(similar, group)[0] if len(group) > 1 else 1.0
        told = Family(rows[group], "told-apart", split.limit * level)
        families += _keep_rule(_refine(evidence, reliability, rows[group], told), told)
    return families


def _keep_rule(parts: list[Family], told: Family) -> list[Family]:
    return [told] if len(parts) == 1 else parts


def _similarities(evidence: Evidence, reliability: NDArray[np.float64] | None, rows: Group) -> Similarities:
    square = np.ix_(rows, rows)
    known = np.ones(len(rows)) if reliability is None else reliability[rows]
    return Similarities.of(evidence.cosines[square], evidence.chance_errors[square], known)


def _split(similar: Similarities, calm: bool) -> Separation | None:
    """The best split if it is beyond one family; its groups are joined where they are not far apart."""
    split = best_split(similar)
    if split.labels is None:
        return None
    apart = separate(similar, split.labels)
    if len(apart.groups) > 1 and not calm and not beyond_one_family(similar, split.gain):
        return None
    return apart


def _is_calm(reliability: NDArray[np.float64], similar: Similarities) -> bool:
    """Whether reliabilities agree as isotropic noise lets them: then so few similarities are as exact as they look."""
    halves = reliability / (2.0 - reliability)
    return bool(halves.std(ddof=1) < CALM_ERRORS * np.median(np.sqrt(similar.floor)))


def _by_reliability(similar: Similarities, rows: Group) -> list[Family]:
    """One family if it is alike enough for its reliability, or might be within the errors of both."""
    level, most = _pooled_level(similar)
    if level < LEAST_ALIKE and most < MIGHT_BE_ALIKE:
        return [Family(row, "less-alike-than-reliable", LEAST_ALIKE) for row in rows[:, None]]
    return [Family(rows, "alike", LEAST_ALIKE)]


def _pooled_level(similar: Similarities) -> tuple[float, float]:
    """Mean cosine over pooled reliability among exchangeable coordinates: as estimated, and at most, by two errors.

    Noise of few directions scatters single cosines and reliabilities by more than they are worth.
    """
    known, count = similar.reliability, len(similar.reliability)
    pairs = np.triu_indices(count, 1)
    cosines = (similar.values * np.sqrt(np.outer(known, known)))[pairs]
    halves = known / (2.0 - known)
    wide = 3.0 if count == 2 else 2.0
    error = 2.0 * float(cosines.std(ddof=1)) / np.sqrt(len(cosines)) if count > 2 else 0.0
    least = float(halves.mean() - wide * halves.std(ddof=1) / np.sqrt(count))
    mean = float(halves.mean())
    level = float(cosines.mean()) * (1.0 + mean) / (2.0 * mean)
    most = (float(cosines.mean()) + error) * (1.0 + least) / (2.0 * least) if least > 0 else np.inf
    return level, most


def _unknown(similar: Similarities, rows: Group, split: Separation | None) -> list[Family]:
    if len(rows) > 2 and _shares_nothing(similar):
        return [Family(row, "nothing-in-common", NOTHING) for row in rows[:, None]]
    level, _ = mean_inside(similar, np.arange(len(rows)))
    return [Family(rows, "cannot-tell", split.limit * level if split is not None else 0.0)]


def _shares_nothing(similar: Similarities) -> bool:
    pairs = similar.values[np.triu_indices(len(similar.values), 1)]
    mean, error = float(pairs.mean()), float(pairs.std(ddof=1)) / np.sqrt(len(pairs))
    return bool(mean < 2.0 * error and mean + 2.0 * error < NOTHING)
