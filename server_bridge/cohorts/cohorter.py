"""Algorithm 3: drifted clients, grouped by how they drifted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import AutoKMeans, Clusterer
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.mapped import release_pages
from server_bridge.cohorts.projection import VARIANCE_THRESHOLD, project
from server_bridge.cohorts.selectors import Vector
from server_bridge.cohorts.signed_ks import KsReference

ClientId = int


@dataclass(frozen=True, slots=True)
class CohortContext:
    """What a cohorter may know beyond parameters; every field is optional.

    Attributes:
        bases: (d,) selected weights that each client was sent; clients may share one object.
        stable_changes: (d,) selected weights minus base of clients that did not drift.
        examples: how many examples each client trained on.
        former: the cohort that each client is taken from.
        reliability: each client's split-half cosine (metric ``clma-split-half``), in [-1, 1].
        tensors: sizes of the tensors that the d selected weights are, in their order.
    """

    bases: Mapping[ClientId, Vector] | None = None
    stable_changes: Mapping[ClientId, Vector] | None = None
    examples: Mapping[ClientId, float] | None = None
    former: Mapping[ClientId, str] | None = None
    reliability: Mapping[ClientId, float] | None = None
    tensors: Sequence[int] = ()


@dataclass(slots=True)
class CohortAssignment:
    """Groups of drifted clients, and what spoke for them.

    Attributes:
        assignments: client to group, from 0, numbered by the smallest client id.
        ks_statistics: client to signed KS statistic, where the cohorter uses it.
        positive_group: clients whose statistic is above 0.
        negative_group: clients whose statistic is 0 or below.
        similarities: client to the mean cosine of its change with its group's others, where used.
        explanations: client to why it is in its group, where the cohorter says so.
    """

    assignments: dict[ClientId, int] = field(default_factory=dict)
    ks_statistics: dict[ClientId, float] = field(default_factory=dict)
    positive_group: list[ClientId] = field(default_factory=list)
    negative_group: list[ClientId] = field(default_factory=list)
    similarities: dict[ClientId, float] = field(default_factory=dict)
    explanations: dict[ClientId, Explanation] = field(default_factory=dict)

    @property
    def num_cohorts(self) -> int:
        """How many groups there are."""
        return len(set(self.assignments.values()))


class Cohorter(ABC):
    """Groups drifted clients. One that takes no ``context`` works just as well.

    Attributes:
        uses_reliability: whether clients should be asked for ``clma-split-half``, which costs them time.
    """

    uses_reliability: ClassVar[bool] = False

    @abstractmethod
    def cohort(
        self,
        ids: Sequence[ClientId],
        matrix: NDArray[Any],
        reference: NDArray[Any],
        *,
        context: CohortContext | None = None,
    ) -> CohortAssignment:
        """Group clients; the result does not depend on their order.

        Args:
            ids: n different clients.
            matrix: (n, d) their selected parameters, finite, rows as ``ids``.
            reference: (d,) the reference model's.
            context: what else is known.

        Raises:
            ValueError: shapes do not fit, ids repeat, or a value is not finite.
        """


class CLMACohorter(Cohorter):
    """The paper's cohorter: split by the sign of the KS statistic, project, K-means.

    Args:
        clusterer: groups the scores of each part; K-means by silhouette if not given.
        variance_threshold: share of variance that the components explain.
        center: whether columns are centred before; ``False`` is the paper's form.
        min_ks_magnitude: clients whose ``|T|`` is below share one group; 0 for none.

    Source: N L et al. 2024, Algorithm 3.
    """

    def __init__(
        self,
        clusterer: Clusterer | None = None,
        variance_threshold: float = VARIANCE_THRESHOLD,
        center: bool = True,
        min_ks_magnitude: float = 0.0,
    ) -> None:
        self.clusterer = clusterer or AutoKMeans()
        self.variance_threshold = variance_threshold
        self.center = center
        self.min_ks_magnitude = min_ks_magnitude

    def cohort(
        self,
        ids: Sequence[ClientId],
        matrix: NDArray[Any] | Sequence[NDArray[Any]],
        reference: NDArray[Any],
        *,
        context: CohortContext | None = None,
    ) -> CohortAssignment:
        """Group clients by parameters alone; see :meth:`Cohorter.cohort`.

        Args:
            ids: n different clients.
            matrix: (n, d) as there, or n rows (d,); never copied, and read in blocks, so that it
                may be mapped from files that are larger than the memory.
            reference: (d,) as there.
            context: not used.
        """
        ordered, rows, vector = client_rows(ids, matrix, reference)
        statistics = _statistics(ordered, rows, vector)
        weak = [i for i, t in enumerate(statistics) if abs(t) < self.min_ks_magnitude]
        positive = [i for i, t in enumerate(statistics) if t > 0 and i not in set(weak)]
        negative = [i for i, t in enumerate(statistics) if t <= 0 and i not in set(weak)]
        groups = [*self._groups(rows, positive), *self._groups(rows, negative), weak]
        return CohortAssignment(
            assignments=number_groups([[ordered[i] for i in group] for group in groups]),
            ks_statistics=dict(zip(ordered, statistics, strict=True)),
            positive_group=[ordered[i] for i in positive],
            negative_group=[ordered[i] for i in negative],
        )

    def _groups(self, rows: list[NDArray[Any]], part: list[int]) -> list[list[int]]:
        if not part:
            return []
        scores = project([rows[i] for i in part], variance_threshold=self.variance_threshold, center=self.center)
        labels = self.clusterer.fit_predict(scores)
        return [[part[i] for i in np.flatnonzero(labels == label)] for label in np.unique(labels)]


def client_rows(
    ids: Sequence[ClientId], matrix: NDArray[Any] | Sequence[NDArray[Any]], reference: NDArray[Any]
) -> tuple[list[ClientId], list[NDArray[Any]], NDArray[Any]]:
    """Clients in the order of their ids, with views of their rows; no value is looked at.

    Raises:
        ValueError: shapes do not fit or ids repeat.
    """
    rows, vector = [np.asanyarray(row) for row in matrix], np.asarray(reference).reshape(-1)
    if len(rows) != len(ids) or any(row.shape != vector.shape for row in rows):
        shape = (len(rows), *sorted({row.shape for row in rows})[:1])
        raise ValueError(f"the matrix is {shape}, {len(ids)} ids and the reference need {(len(ids), vector.size)}")
    if len(set(ids)) != len(ids):
        raise ValueError("a client id repeats")
    order = sorted(range(len(ids)), key=lambda i: ids[i])
    return [ids[i] for i in order], [rows[i] for i in order], vector


def check_clients(
    ids: Sequence[ClientId], matrix: NDArray[Any], reference: NDArray[Any]
) -> tuple[list[ClientId], NDArray[Any], NDArray[Any]]:
    """Clients in the order of their ids, with rows and reference of fitting shapes.

    The matrix is copied if the ids are not in order.

    Raises:
        ValueError: shapes do not fit, ids repeat, or a value is not finite.
    """
    ordered, views, vector = client_rows(ids, matrix, reference)
    for client, row in zip(ordered, views, strict=True):
        if not np.isfinite(row).all():
            raise ValueError(f"the parameters of client {client} are not finite")
    if not np.isfinite(vector).all():
        raise ValueError("the reference is not finite")
    if ordered == list(ids):
        return ordered, np.asarray(matrix), vector
    return ordered, np.stack(views), vector


def _statistics(ids: list[ClientId], rows: list[NDArray[Any]], reference: NDArray[Any]) -> list[float]:
    if not rows:
        return []
    prepared, statistics = KsReference(reference, *{row.dtype for row in rows}), []
    for client, row in zip(ids, rows, strict=True):
        statistics.append(prepared.statistic(row, f"client {client}"))
        release_pages([row])
    return statistics


def number_groups(groups: Sequence[Sequence[ClientId]]) -> dict[ClientId, int]:
    """Client to group number, by the smallest id in each group; empty groups vanish."""
    ordered = sorted((sorted(group) for group in groups if group), key=lambda group: group[0])
    return {client: number for number, group in enumerate(ordered) for client in group}
