"""Who belongs to which cohort, each cohort's weights, and how it came to that."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from server_bridge.aggregation.means import weighted_mean
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.selectors import ParamSelector

CohortId = str
ROOT: CohortId = "root"
Model = dict[str, NDArray[Any]]
Reason = Literal["joined", "placed", "drifted", "recognised", "returned", "merged", "left"]
_COUNTED = re.compile(r"c([1-9][0-9]*)", re.ASCII)
MOVES_KEPT = 10_000
ROUNDS_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Move:
    """One client's change of cohort.

    Attributes:
        server_round: the round in which it happened.
        client: who.
        source: the cohort it left; ``None`` for a newcomer.
        target: the cohort it entered; ``None`` if it left for good.
        reason: why.
        statistic: what spoke for it: the signed KS statistic or the mean cosine with the group.
        facts: all that spoke for it, as JSON values; clients are named by their ids.
    """

    server_round: int
    client: ClientId
    source: CohortId | None
    target: CohortId | None
    reason: Reason
    statistic: float | None = None
    facts: dict[str, Any] | None = None


class CohortRegistry:
    """Membership, weights, history and lineage of cohorts.

    History keeps the last 1,000 rounds, lineage the last 10,000 moves. Names are never used twice.

    Args:
        new_cohort_id: names new cohorts, never two alike; ``c1``, ``c2`` ... if not given.
    """

    def __init__(self, new_cohort_id: Callable[[], CohortId] | None = None) -> None:
        self._new_cohort_id = new_cohort_id or self._count_up
        self._counter = 0
        self._round = 0
        self._round_moves: list[Move] = []
        self._cohort_of: dict[ClientId, CohortId] = {}
        self._models: dict[CohortId, Model] = {}
        self._quarantined: dict[ClientId, CohortId] = {}
        self._history: deque[dict[ClientId, CohortId]] = deque(maxlen=ROUNDS_KEPT)
        self._lineage: deque[Move] = deque(maxlen=MOVES_KEPT)

    @property
    def assignments(self) -> dict[ClientId, CohortId]:
        """Client to cohort, by client."""
        return dict(sorted(self._cohort_of.items()))

    @property
    def cohort_ids(self) -> list[CohortId]:
        """Living cohorts in the order of their creation."""
        return list(self._models)

    @property
    def quarantined(self) -> set[ClientId]:
        """Clients that are in no cohort until they are regrouped."""
        return set(self._quarantined)

    @property
    def history(self) -> list[dict[ClientId, CohortId]]:
        """Client to cohort after each round, oldest first."""
        return [dict(snapshot) for snapshot in self._history]

    @property
    def lineage(self) -> list[Move]:
        """Every move, oldest first."""
        return list(self._lineage)

    @property
    def round_moves(self) -> list[Move]:
        """The moves since the round began."""
        return list(self._round_moves)

    def cohort_of(self, client: ClientId) -> CohortId:
        """The client's cohort; a stranger's and a quarantined one's is the root."""
        return self._cohort_of.get(client, ROOT)

    def members(self, cohort: CohortId) -> list[ClientId]:
        """Who is in a cohort, in the order of ids."""
        return sorted(client for client, mine in self._cohort_of.items() if mine == cohort)

    def params(self, cohort: CohortId) -> Model:
        """A cohort's weights; empty for one that has none yet.

        Raises:
            KeyError: no such cohort.
        """
        return self._models[cohort]

    def set_params(self, cohort: CohortId, params: Mapping[str, NDArray[Any]]) -> None:
        """Replace a cohort's weights; a new name begins a cohort."""
        counted = _COUNTED.fullmatch(cohort)
        self._counter = max(self._counter, int(counted[1]) if counted else 0)
        self._models[cohort] = dict(params)

    def begin_round(self, server_round: int) -> None:
        """The round that moves are booked under from here on."""
        self._round = server_round
        self._round_moves.clear()

    def ensure_root(self, clients: Iterable[ClientId]) -> None:
        """Put clients never seen into the root cohort, which always exists."""
        self._models.setdefault(ROOT, {})
        for client in clients:
            if client not in self._cohort_of and client not in self._quarantined:
                self._enter(client, None, ROOT, "joined")

    def place(self, client: ClientId, cohort: CohortId) -> None:
        """Put a client where somebody else (a release, an operator) says it is."""
        source = self._quarantined.pop(client, None) or self._cohort_of.get(client)
        if self._cohort_of.get(client) != cohort:
            self._enter(client, source, cohort, "placed")

    def forget(self, client: ClientId) -> None:
        """A client is gone for good; one that is only offline stays a member."""
        source = self._cohort_of.pop(client, None) or self._quarantined.pop(client, None)
        if source is not None:
            self._book(Move(self._round, client, source, None, "left"))

    def quarantine(self, client: ClientId) -> None:
        """Detach a drifted client from its cohort, once."""
        if client not in self._quarantined:
            self._quarantined[client] = self._cohort_of.pop(client, ROOT)

    def clear_quarantine(self) -> None:
        """Whoever was not regrouped returns where it came from."""
        self._models.setdefault(ROOT, {})
        for client, source in self._quarantined.items():
            self._cohort_of[client] = source if source in self._models else ROOT
        self._quarantined.clear()

    def create_cohort(
        self,
        members: Iterable[ClientId],
        params: Mapping[str, NDArray[Any]],
        statistics: Mapping[ClientId, float] | None = None,
        facts: Mapping[ClientId, dict[str, Any]] | None = None,
    ) -> CohortId:
        """Begin a cohort of quarantined clients.

        Args:
            members: who is in it.
            params: its first weights.
            statistics: what spoke for each member.
            facts: all that spoke for each member.

        Returns:
            Its name.
        """
        cohort = self._new_cohort_id()
        if cohort in self._models:
            raise ValueError(f"cohort {cohort!r} exists already")
        self.set_params(cohort, params)
        for client in sorted(members):
            source = self._quarantined.pop(client, None) or self._cohort_of.get(client)
            mine = (statistics or {}).get(client), (facts or {}).get(client)
            self._enter(client, source, cohort, "drifted", *mine)
        return cohort

    def join(
        self,
        members: Iterable[ClientId],
        cohort: CohortId,
        facts: Mapping[ClientId, dict[str, Any]] | None = None,
        reason: Reason = "recognised",
    ) -> None:
        """Let clients whose concept is known go to its cohort, whose weights stay as they are.

        Args:
            members: who; quarantined ones leave the quarantine.
            cohort: a living one.
            facts: all that spoke for each member.
            reason: why; they have drifted if not given.

        Raises:
            KeyError: no such cohort.
        """
        if cohort not in self._models:
            raise KeyError(cohort)
        for client in sorted(members):
            source = self._quarantined.pop(client, None) or self._cohort_of.get(client)
            mine = (facts or {}).get(client)
            self._enter(client, source, cohort, reason, (mine or {}).get("similarity"), mine)

    def prune_empty(self, keep: tuple[CohortId, ...] = (ROOT,)) -> list[CohortId]:
        """Remove cohorts without members, but those to keep; returns their names."""
        living = set(self._cohort_of.values()) | set(keep)
        gone = [cohort for cohort in self._models if cohort not in living]
        for cohort in gone:
            del self._models[cohort]
        return gone

    def merge_similar(
        self,
        selector: ParamSelector,
        threshold: float,
        *,
        spared: Iterable[CohortId] = (),
        origin: CohortId | None = None,
    ) -> dict[CohortId, CohortId]:
        """Merge cohorts whose weights, or changes, lie within a cosine distance, the closest first.

        The older cohort stays (the root is the oldest) and gets the mean of both, weighted by
        their member counts.

        Args:
            selector: which tensors are compared.
            threshold: least cosine distance of two different cohorts.
            spared: cohorts that take no part, such as those just split off.
            origin: a cohort from whose weights changes are measured; it takes no part. ``None``: the
                weights are compared, of which nearly all is what the cohorts began with.

        Returns:
            Merged cohort to the one that it went into.
        """
        merged: dict[CohortId, CohortId] = {}
        apart = set(spared) | ({origin} if origin is not None else set())
        from_where = None if origin is None else np.asarray(selector.flatten(self._models[origin]), np.float64)
        while (pair := self._closest(selector, apart, from_where)) is not None and pair[0] < threshold:
            distance, kept, gone = pair
            self.merge(kept, gone, facts={"distance": distance, "threshold": threshold, "rule": "merged"})
            merged = {name: kept if target == gone else target for name, target in merged.items()}
            merged[gone] = kept
        return merged

    def snapshot(self) -> None:
        """Record the membership as one round of history."""
        self._history.append(self.assignments)

    def _count_up(self) -> CohortId:
        self._counter += 1
        return f"c{self._counter}"

    def _enter(
        self,
        client: ClientId,
        source: CohortId | None,
        target: CohortId,
        reason: Reason,
        statistic: float | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self._cohort_of[client] = target
        self._book(Move(self._round, client, source, target, reason, statistic, facts))

    def _book(self, move: Move) -> None:
        self._lineage.append(move)
        self._round_moves.append(move)

    def _closest(
        self, selector: ParamSelector, spared: set[CohortId], origin: NDArray[np.float64] | None
    ) -> tuple[float, CohortId, CohortId] | None:
        names = [cohort for cohort, model in self._models.items() if model and cohort not in spared]
        vectors = [np.asarray(selector.flatten(self._models[cohort]), np.float64) for cohort in names]
        vectors = vectors if origin is None else [vector - origin for vector in vectors]
        units = [vector / length if (length := float(np.linalg.norm(vector))) > 0 else vector for vector in vectors]
        pairs = [(1.0 - float(units[i] @ units[j]), names[i], names[j]) for j in range(len(names)) for i in range(j)]
        return min(pairs, key=lambda pair: pair[0], default=None)

    def merge(
        self, kept: CohortId, gone: CohortId, reason: Reason = "merged", facts: dict[str, Any] | None = None
    ) -> None:
        """Let one cohort go into another, which gets the mean of both, weighted by their member counts.

        Raises:
            ValueError: they are one.
            KeyError: no such cohort.
        """
        if kept == gone:
            raise ValueError(f"cohort {kept!r} cannot go into itself")
        movers = self.members(gone)
        counts = [float(len(self.members(kept))), float(len(movers))]
        models = [self._models[kept], self._models.pop(gone)]
        if sum(counts) > 0:
            self._models[kept] = weighted_mean(models, counts)
        self._quarantined = {c: kept if source == gone else source for c, source in self._quarantined.items()}
        for client in movers:
            self._enter(client, gone, kept, reason, None, facts)

    def export(self) -> dict[str, Any]:
        """Everything but the weights as JSON values."""
        return {
            "round": self._round,
            "counter": self._counter,
            "cohorts": self.cohort_ids,
            "members": _pairs(self._cohort_of),
            "quarantined": _pairs(self._quarantined),
            "history": _changes(list(self._history)),
            "lineage": [list(astuple(move)) for move in self._lineage],
        }

    def restore(self, document: Mapping[str, Any], models: Mapping[CohortId, Model]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._round = int(document["round"])
        self._round_moves.clear()
        self._counter = int(document["counter"])
        self._models = {cohort: dict(models.get(cohort, {})) for cohort in document["cohorts"]}
        self._cohort_of = {int(client): str(cohort) for client, cohort in document["members"]}
        self._quarantined = {int(client): str(cohort) for client, cohort in document["quarantined"]}
        self._history = deque(_replay(document["history"]), maxlen=ROUNDS_KEPT)
        self._lineage = deque((Move(*row) for row in document["lineage"]), maxlen=MOVES_KEPT)


def _pairs(members: Mapping[ClientId, CohortId]) -> list[list[Any]]:
    return [[client, cohort] for client, cohort in sorted(members.items())]


def _changes(history: list[dict[ClientId, CohortId]]) -> list[list[list[Any]]]:
    """Each round as [client, cohort or null] where it differs from the round before."""
    changes: list[list[list[Any]]] = []
    before: dict[ClientId, CohortId] = {}
    for after in history:
        clients = sorted(before.keys() | after.keys())
        changes.append([[c, after.get(c)] for c in clients if before.get(c) != after.get(c)])
        before = after
    return changes


def _replay(changes: list[list[list[Any]]]) -> list[dict[ClientId, CohortId]]:
    history: list[dict[ClientId, CohortId]] = []
    current: dict[ClientId, CohortId] = {}
    for change in changes:
        for client, cohort in change:
            current[int(client)] = cohort
        current = {client: cohort for client, cohort in current.items() if cohort is not None}
        history.append(dict(sorted(current.items())))
    return history
