"""Decisions in words, client by client."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.evidence import Evidence, Matrix
from server_bridge.cohorts.explanation import ClientId, Explanation, Neighbour
from server_bridge.cohorts.families import Family

SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "no-change": "Its weights did not change, so nothing says whom it is like.",
        "nobody-to-compare": "No other drifted client began from comparable weights, so it is by itself.",
        "nothing-in-common": "Its change has nothing in common with those of other groups: "
        "their similarity is no larger than chance.",
        "told-apart": "Changes inside its group are more alike than those across groups, "
        "beyond what one family of this scatter shows and by more than families differ in themselves.",
        "told-apart-in-a-layer": "In one layer, which holds much of them, changes inside its group are more alike than "
        "those across groups, by far more than families differ in themselves.",
        "alike": "Changes in its group are as alike as their reliability lets one family's be.",
        "less-alike-than-reliable": "Its change is less like the others' than its reliability lets one family's be, "
        "so it is by itself.",
        "hardly-alike": "Its change is less like the others' than updates of one drift are, even noisy ones, "
        "so it is by itself.",
        "cannot-tell": "Nothing tells its group from one family. One drift with noise and several drifts with a part "
        "in common would look the same here; without enough split-half reliabilities such clients stay together.",
    }
)


def explain(
    ids: Sequence[ClientId], evidence: Evidence, reliability: NDArray[np.float64] | None, families: Sequence[Family]
) -> dict[ClientId, Explanation]:
    """Why each client is where it is.

    Args:
        ids: n clients in the order of the evidence's rows.
        evidence: what was measured.
        reliability: (n,) shares that are not noise; similarities are cosines over their roots' product.
        families: groups of row numbers that cover 0 to n - 1.
    """
    share = np.ones((len(ids), len(ids))) if reliability is None else np.sqrt(np.outer(reliability, reliability))
    errors = np.maximum(evidence.block_errors, evidence.chance_errors) / share
    reasons = {}
    for family in families:
        similar = _deciding(evidence, family) / share
        for row in family.rows:
            reasons[ids[row]] = _explanation(ids, similar, errors, family, int(row))
    return {client: reasons[client] for client in ids}


def _deciding(evidence: Evidence, family: Family) -> Matrix:
    return evidence.similarities if family.layer is None else evidence.layer_cosines[family.layer]


def _explanation(ids: Sequence[ClientId], similar: Matrix, errors: Matrix, family: Family, row: int) -> Explanation:
    mates = [int(i) for i in family.rows if i != row]
    others = np.delete(np.arange(len(ids)), family.rows).tolist()
    mean = float(similar[row, mates].mean()) if mates else 1.0
    error = float(errors[row, mates].mean() / np.sqrt(len(mates))) if mates else 0.0
    own, other = (_nearest(ids, similar, errors, row, rows) for rows in (mates, others))
    words = [SENTENCES[family.rule]]
    if own is not None:
        words.append(f"Nearest in its group: {own.client} ({own.similarity:.2f} +- {own.standard_error:.2f}).")
    if other is not None:
        words.append(f"Nearest outside: {other.client} ({other.similarity:.2f} +- {other.standard_error:.2f}).")
    return Explanation(ids[row], own, other, mean, error, family.limit, family.rule, " ".join(words))


def _nearest(ids: Sequence[ClientId], similar: Matrix, errors: Matrix, row: int, rows: list[int]) -> Neighbour | None:
    if not rows:
        return None
    best = max(rows, key=lambda i: (similar[row, i], -i))
    return Neighbour(ids[best], float(similar[row, best]), float(errors[row, best]))
