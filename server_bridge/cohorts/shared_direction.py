"""Clients whose changes have nothing in common: cosines no larger than chance."""

from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from server_bridge.cohorts.evidence import Matrix

# Share of pairs with nothing in common that may be taken for having something, over all pairs.
RISK = 0.025
LEAST_SCORE = 1.9
CHECK_RISK = 0.005
# So few clients do not show how far cosines scatter; noise of 20 directions scatters them by 0.1 to 0.2.
FEW, UNSEEN_SCATTER = 3, 0.1


def parts_in_common(cosines: Matrix, chance_errors: Matrix) -> list[list[int]]:
    """Clients by whether anything is shared at all; what is at all in doubt stays together.

    Parts join while their joint score sum(c / se) / sqrt(pairs) is beyond chance. Two parts are
    kept apart only if all their cosines are as chance gives them, or surely negative: where
    cosines scatter far more than independent coordinates can, the scatter is no evidence.

    Args:
        cosines: (n, n) of the changes.
        chance_errors: (n, n) their standard deviation by chance.

    Returns:
        Parts, each sorted, that cover 0 to n - 1.
    """
    scores = np.divide(cosines, chance_errors, out=np.zeros_like(cosines), where=chance_errors > 0)
    np.fill_diagonal(scores, 0.0)
    pairs = cosines[np.triu_indices(len(cosines), 1)]
    scatter = float(pairs.std()) if len(pairs) > 1 else 0.0
    parts = _join(scores)
    while len(parts) > 1:
        doubt = next((pair for pair in combinations(parts, 2) if not _apart(*pair, cosines, scores, scatter)), None)
        if doubt is None:
            break
        parts = [part for part in parts if part not in doubt] + [sorted(doubt[0] + doubt[1])]
    return sorted(parts)


@lru_cache
def limit_of(clients: int) -> float:
    """The joint score above which so many clients' largest is not chance."""
    return float(norm.isf(RISK / pairs_of(clients)))


def pairs_of(clients: int) -> int:
    """How many pairs there are, at least 1."""
    return max(1, clients * (clients - 1) // 2)


def _join(scores: Matrix) -> list[list[int]]:
    total, sizes = scores.copy(), np.ones(len(scores))
    parts = [[i] for i in range(len(scores))]
    limit, within = limit_of(len(scores)), 0.0
    while len(parts) > 1:
        root = np.sqrt(np.outer(sizes, sizes))
        joint = total / root
        np.fill_diagonal(joint, -np.inf)
        a, b = sorted(int(i) for i in np.unravel_index(int(np.argmax(joint)), joint.shape))
        # Once a pair is known to share something, others are expected to share as much.
        half_way = max(LEAST_SCORE, 0.5 * within * root[a, b]) if within else np.inf
        if joint[a, b] <= min(limit, half_way):
            break
        within = max(within, joint[a, b] / root[a, b])
        parts[a] = parts[a] + parts[b]
        total[a] += total[b]
        total[:, a] += total[:, b]
        sizes[a] += sizes[b]
        total, sizes = np.delete(np.delete(total, b, 0), b, 1), np.delete(sizes, b)
        del parts[b]
    return [sorted(part) for part in parts]


@lru_cache
def _calm_limit(clients: int, pairs: int) -> float:
    """The sum of squared scores of so many pairs above which they are no chance."""
    return float(chi2.isf(CHECK_RISK / pairs_of(clients), pairs))


def _apart(left: list[int], right: list[int], cosines: Matrix, scores: Matrix, scatter: float) -> bool:
    across: NDArray[np.float64] = scores[np.ix_(left, right)]
    limit = limit_of(len(scores))
    calm = bool(np.square(across).sum() <= _calm_limit(len(scores), across.size))
    if calm and abs(across.sum()) / np.sqrt(across.size) <= limit + 0.5:
        return True
    mean = float(cosines[np.ix_(left, right)].mean())
    negative = -float(across.sum()) / np.sqrt(across.size) > limit + 0.5
    error = max(scatter / np.sqrt(min(len(left), len(right))), UNSEEN_SCATTER if len(scores) <= FEW else 0.0)
    return bool(negative and mean + 2.0 * error < 0.0)
