"""Updates that are as alike as no two gateways' own are: together they count as one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from server_bridge.aggregation.means import Tensors
from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.gram import gram_matrix

NEAR_COPY = "near-copy"
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NearCopyRule:
    """When updates of a cohort count as one.

    A few that lie ten times nearer to each other than to anybody else are one update and its copies with some noise on
    them. Which of them is the first nobody can tell, and nobody is refused: they share one's weight. They are always
    a minority: what most of a cohort have in common is no copy.

    Attributes:
        near: the greatest distance (1 - cosine) among them as a share of the least to anybody else: of honest members
            of one family it is a third and more, of copies with a tenth of noise a fiftieth.
        most: members; in larger cohorts one more of the same weighs little, and comparing all costs their square.

    Source: ours; that updates of one origin under many names are too alike is Fung et al. 2020, FoolsGold, which weighs
        by the largest cosine alone and so takes weight from honest clients that are alike.
    """

    near: float = 0.1
    most: int = 200

    def shares(self, changed: Sequence[Tensors], bases: Sequence[Tensors]) -> NDArray[np.float64]:
        """(n,) what each of a cohort's models counts, in (0, 1].

        Args:
            changed: the models.
            bases: what each began from.

        Cost: O(n^2 d) time, O(n^2) memory, and O(n^3) of single numbers.
        """
        count, shares = len(changed), np.ones(len(changed))
        if 4 < count <= self.most:
            distances = _distances(changed, bases)
            for members in _branches(distances):  # smaller before larger: these have the last word
                if 2 * len(members) < count and self._apart(distances, members):
                    shares[members] = 1.0 / len(members)
        return shares

    def _apart(self, distances: Matrix, members: NDArray[np.intp]) -> bool:
        outside = np.delete(distances[members], members, 1)
        return bool(distances[np.ix_(members, members)].max() < self.near * outside.min())


def near_copy_words(share: float) -> Refusal:
    """Why an update counted less."""
    alike = f"{round(1 / share)} updates are ten times nearer to each other than to any other of their cohort"
    return Refusal(NEAR_COPY, f"{alike}: they counted as one")


def _branches(distances: Matrix) -> list[NDArray[np.intp]]:
    """Every branch of the single-linkage tree but the leaves, in the order in which they join."""
    count = len(distances)
    parts = [np.array([row], np.intp) for row in range(count)]
    for left, right, *_ in linkage(squareform(distances, checks=False), "single"):
        parts.append(np.concatenate([parts[int(left)], parts[int(right)]]))
    return parts[count:]


def _distances(changed: Sequence[Tensors], bases: Sequence[Tensors]) -> Matrix:
    gram = np.zeros((len(changed), len(changed)))
    for name in changed[0]:
        gram += gram_matrix([np.ravel(model[name]) for model in changed], origins=[np.ravel(b[name]) for b in bases])
    lengths = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    scale = np.outer(lengths, lengths)
    distances = 1.0 - np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.clip((distances + distances.T) / 2.0, 0.0, None), np.float64)
