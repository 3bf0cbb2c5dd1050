"""Cohorts that an operator wants merged: taken up between adaptations, released, and written into the lineage."""

import time
from collections.abc import Callable, Collection, Mapping

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.wire.tensors import Weights, decode_weights
from server_bridge.cohorts.membership import ROOT
from server_bridge.rounds.lineage import Moment, record_merge
from server_bridge.rounds.merge_verdict import MergeVerdicts
from server_bridge.rounds.release_book import Releases
from server_bridge.store.decisions import Fact
from server_bridge.store.merges import MERGED, REFUSED, MergeRequest
from server_bridge.store.store import Store

RETRY_S = 10.0
UNLIKE_FROM = 0.5
"""Cosine distance of two cohorts' changes: 0.69 and more between remounts, up to 0.44 within one (docs/cohorts.md)."""
REASON_SIGNS = 500

_log = structlog.get_logger(__name__)


def unfit_merge(gone: str, kept: str, cohorts: Collection[str]) -> str | None:
    """Why one cohort cannot go into another; ``None`` if it can.

    Args:
        gone: the cohort that would end.
        kept: the cohort that its members would go to.
        cohorts: those that there are of the bundle.
    """
    if gone == kept:
        return f"cohort {gone!r} cannot go into itself"
    if gone == ROOT:
        return "the root cohort goes into no other: it has whoever has not drifted, and newcomers begin in it"
    absent = [name for name in (gone, kept) if name not in cohorts]
    return f"there is no cohort {absent[0]!r}" if absent else None


def apart(gone: Weights, kept: Weights, root: Weights) -> float:
    """Cosine distance, 0 to 2, of what two cohorts have changed of the root's weights; 1 where one changed nothing."""
    of_gone, of_kept = (_changes(weights, root) for weights in (gone, kept))
    lengths = float(np.linalg.norm(of_gone)) * float(np.linalg.norm(of_kept))
    return 1.0 - float(of_gone @ of_kept) / lengths if lengths > 0 else 1.0


def _changes(weights: Weights, root: Weights) -> NDArray[np.float64]:
    return np.concatenate([(weights[name].astype(np.float64) - root[name]).ravel() for name in root])


class CohortMerges:
    """Takes up what operators asked. Nothing of it happens while an adaptation runs: its rounds would undo it.

    Args:
        store: requests, lineage, decisions.
        releases: what is in force; a merge is a release of another membership, and of no weights.
        wall: seconds since 1970, for records only.
        monotonic: seconds; after a broker or signer that was away it is tried again ten seconds later.
    """

    def __init__(
        self,
        store: Store,
        releases: Releases,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._releases = releases
        self._wall = wall
        self._monotonic = monotonic
        self._not_before_s = float("-inf")
        self._verdicts = MergeVerdicts(store, releases, wall, monotonic)

    def take_up(self) -> None:
        """Merge what is queued, in the order in which it was asked, at most one release each; judge what was merged.

        Raises:
            StorageError: the disk or the database refuses; the request stays queued.
        """
        self._verdicts.look()
        if self._monotonic() < self._not_before_s or self._store.adaptations.running() is not None:
            return
        for request in self._store.merges.queued():
            try:
                self._merge(request)
            except TransientError as error:
                _log.warning("merge-postponed", cohort=request.gone, into=request.kept, problem=error.problem)
                self._not_before_s = self._monotonic() + RETRY_S
                return

    def _merge(self, request: MergeRequest) -> None:
        members = self._releases.members(request.bundle)
        if self._is_released(request, members):  # and the bridge was killed before it was recorded
            self._record(request, "released before")
            return
        current = self._releases.current(request.bundle)
        problem = unfit_merge(request.gone, request.kept, current) or self._unlike(request, current)
        if problem is not None:
            self._refuse(request, problem)
            return
        reason = f"cohort {request.gone} into {request.kept}, asked by {request.asked_by}: {request.why}"
        try:
            number = self._releases.release(
                request.bundle, _merged(members, request.gone, request.kept), {}, reason[:REASON_SIGNS]
            )
        except RejectedUpdate as error:
            self._refuse(request, str(error))
            return
        self._record(request, f"release {number}")

    def _unlike(self, request: MergeRequest, current: Mapping[str, str]) -> str | None:
        """Why models that are not alike are not merged; None: they are, or it is asked all the same.

        The root has changed nothing that could be compared.
        """
        if request.unlike or request.kept == ROOT:
            return None
        weights = {
            name: decode_weights(self._store.blobs.read(current[name])) for name in (request.gone, request.kept, ROOT)
        }
        distance = apart(weights[request.gone], weights[request.kept], weights[ROOT])
        if distance < UNLIKE_FROM:
            return None
        return (
            f"what {request.gone} and {request.kept} have changed is not alike: {distance:.2f} apart, allowed "
            f"{UNLIKE_FROM}; {request.kept}'s model may not fit {request.gone}'s gateways; `--unlike` merges them"
        )

    def _is_released(self, request: MergeRequest, members: Mapping[str, str]) -> bool:
        """Whether the releases have the merge that the lineage does not know yet."""
        if request.gone in self._releases.current(request.bundle):
            return False
        lives = self._store.lineage.cohorts(request.bundle)
        known = self._store.lineage.members(request.bundle)
        movers = [gateway for gateway, cohort in known.items() if cohort == request.gone]
        there = all(members.get(gateway, ROOT) == request.kept for gateway in movers)
        return there and any(life.id == request.gone and life.ended_s is None for life in lives)

    def _record(self, request: MergeRequest, outcome: str) -> None:
        now_s = self._wall()
        moment = Moment(request.bundle, None, None, now_s)
        members, cohorts = (of(request.bundle) for of in (self._releases.members, self._releases.current))
        detail = (
            f"cohort {request.gone} went into {request.kept}, {outcome}; asked by {request.asked_by}: {request.why}"
        )
        with self._store.transaction():
            moved = record_merge(self._store.lineage, moment, request, members, cohorts)
            self._store.merges.end(request.id, MERGED, outcome, now_s)
            facts: dict[str, Fact] = {"request": request.id, "gateways": moved}
            self._store.decisions.record("cohorts", "merged", detail, now_s, facts=facts)
        _log.info("cohorts-merged", cohort=request.gone, into=request.kept, asked_by=request.asked_by)

    def _refuse(self, request: MergeRequest, problem: str) -> None:
        now_s = self._wall()
        detail = f"{problem}; asked by {request.asked_by} that {request.gone} go into {request.kept}: {request.why}"
        with self._store.transaction():
            self._store.merges.end(request.id, REFUSED, problem, now_s)
            self._store.decisions.record("cohorts", "merge-refused", detail, now_s, facts={"request": request.id})
        _log.warning("merge-refused", cohort=request.gone, into=request.kept, problem=problem)


def _merged(members: Mapping[str, str], gone: str, kept: str) -> dict[str, str]:
    """Gateway to cohort afterwards, without those of the root."""
    after = {gateway: kept if cohort == gone else cohort for gateway, cohort in members.items()}
    return {gateway: cohort for gateway, cohort in after.items() if cohort != ROOT}
