"""Hysteresis: a small cohort that split off through noise goes back to the one that it belongs to."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.cosine import cosine_matrix
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.gram import distance, gram_matrix

CohortId = str
RETURN_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class ReturnRule:
    """When two cohorts of one adaptation become one again.

    The change of a cohort is its weights minus those that its first members were sent. In the
    rounds after the split (the round itself is what the cohorter judged) a small cohort goes
    together with the one whose change agrees best with its own, if in ``rounds`` rounds in a row
    that is the same one and the cosine is at least ``level``, and at least ``margin`` above what
    the small cohort has with every larger one else, and above what two larger ones have with each
    other: they are known to differ, so that is how alike different drifts look here.

    Defaults: motion sensors, 4 seeds, changes from round 2 on. A lone gateway has 0.48-0.57 with
    its family's cohort in round 2 and 0.37-0.44 in round 3, two lone ones of a family 0.35-0.44
    and 0.25-0.34, gateways and cohorts of different families at most 0.19 and 0.10.

    Attributes:
        few: a small cohort has at most so many members.
        level: least cosine.
        margin: least distance to the others' cosines.
        rounds: how many rounds in a row.
    """

    few: int = 2
    level: float = 0.25
    margin: float = 0.15
    rounds: int = RETURN_ROUNDS


@dataclass(frozen=True, slots=True)
class Streak:
    """For how many rounds in a row a small cohort has agreed with the same other one."""

    target: CohortId
    rounds: int


@dataclass(frozen=True, slots=True)
class Return:
    """Two cohorts that belong together.

    Attributes:
        small: the one that split off.
        target: the one that it agrees with.
        similarity: cosine of their changes.
        threshold: what it had to reach in this round.
        rounds: how many rounds in a row it did.
    """

    small: CohortId
    target: CohortId
    similarity: float
    threshold: float
    rounds: int

    def to_json(self) -> dict[str, Any]:
        """As it is kept with the moves."""
        sentence = (
            f"the changes of {self.small} and {self.target} agreed in {self.rounds} rounds in a row, "
            f"the last time with a cosine of {self.similarity:.2f} where {self.threshold:.2f} was needed"
        )
        return {
            "similarity": self.similarity,
            "threshold": self.threshold,
            "rounds": self.rounds,
            "rule": "returned",
            "sentence": sentence,
        }


def judge(
    rule: ReturnRule,
    streaks: Mapping[CohortId, Streak],
    cosines: Mapping[tuple[CohortId, CohortId], float],
    sizes: Mapping[CohortId, int],
    candidates: Sequence[CohortId],
) -> tuple[dict[CohortId, Streak], list[Return]]:
    """One round of the rule.

    Args:
        rule: see there.
        streaks: of the rounds before, by small cohort.
        cosines: of the changes, both orders of every pair.
        sizes: members of each cohort that has a change.
        candidates: small cohorts to judge in this round; the others' streaks stay as they are.

    Returns:
        The streaks after it, and who goes back now, the most similar first. A cohort is in at most
        one of these.
    """
    after = {cohort: streak for cohort, streak in streaks.items() if cohort in sizes and streak.target in sizes}
    ready: list[Return] = []
    for small in candidates:
        others = [cohort for cohort in sizes if cohort != small]
        target = max(others, key=lambda other: cosines[small, other], default=None)
        before = after.pop(small, None)
        if target is None:
            continue
        needed = _needed(rule, cosines, [c for c in others if sizes[c] > rule.few], small, target)
        if cosines[small, target] < needed:
            continue
        rounds = before.rounds + 1 if before is not None and before.target == target else 1
        after[small] = Streak(target, rounds)
        if rounds >= rule.rounds:
            ready.append(Return(small, target, cosines[small, target], needed, rounds))
    return after, _apart(ready)


def _needed(
    rule: ReturnRule,
    cosines: Mapping[tuple[CohortId, CohortId], float],
    large: Sequence[CohortId],
    small: CohortId,
    target: CohortId,
) -> float:
    different = [cosines[small, other] for other in large if other != target]
    different += [cosines[a, b] for i, a in enumerate(large) for b in large[:i]]
    return max(rule.level, max(different, default=-1.0) + rule.margin)


def _apart(ready: Sequence[Return]) -> list[Return]:
    chosen: list[Return] = []
    taken: set[CohortId] = set()
    for each in sorted(ready, key=lambda one: (-one.similarity, one.small)):
        if not taken & {each.small, each.target}:
            chosen.append(each)
            taken |= {each.small, each.target}
    return chosen


def change_cosines(
    models: Mapping[CohortId, NDArray[Any]], origins: Mapping[CohortId, NDArray[Any]]
) -> dict[tuple[CohortId, CohortId], float]:
    """Cosines of the cohorts' changes, in both orders of every pair.

    Args:
        models: (d,) selected weights.
        origins: (d,) what each began from; cohorts may share one object.

    Returns:
        Minus 1 for cohorts whose origins lie further apart than the shorter of their changes: these
        changes cannot be compared. 0 for a cohort that has not changed.

    Cost: O(k^2 d) time, O(k d) memory for k cohorts.
    """
    names = list(models)
    if not names:
        return {}
    gram = gram_matrix(np.stack([models[name] for name in names]), origins=[origins[name] for name in names])
    cosines, lengths = cosine_matrix(gram), np.sqrt(np.diag(gram))
    found: dict[tuple[CohortId, CohortId], float] = {}
    for i, one in enumerate(names):
        for j, other in enumerate(names[:i]):
            near = origins[one] is origins[other] or distance(origins[one], origins[other]) <= min(
                lengths[i], lengths[j]
            )
            found[one, other] = found[other, one] = float(cosines[i, j]) if near else -1.0
    return found


def is_doubtful(explanation: Explanation | None) -> bool:
    """Whether a split may be noise: the nearest client outside lay within two standard errors of the threshold.

    So may one that nobody explained, or where there was nobody else to compare with.
    """
    if explanation is None or explanation.other is None:
        return True
    other = explanation.other
    return not other.similarity + 2 * other.standard_error < explanation.threshold  # doubtful with NaN, too


def small_cohorts(rule: ReturnRule, sizes: Mapping[CohortId, int], doubtful: Set[CohortId]) -> list[CohortId]:
    """Those that the rule looks at, in the order of ``sizes``."""
    return [cohort for cohort, size in sizes.items() if cohort in doubtful and 0 < size <= rule.few]
