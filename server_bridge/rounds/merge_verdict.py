"""What gateways' own labels say of a merge that an operator asked for."""

import math
import time
from collections.abc import Callable

import structlog

from server_bridge.rounds.lineage import MERGE_ASKED
from server_bridge.rounds.release_book import Releases, released_weights
from server_bridge.store.counts import Accuracies
from server_bridge.store.decisions import Fact
from server_bridge.store.merges import MERGED, MergeRequest
from server_bridge.store.store import Store

LOOK_EVERY_S = 60.0
LOOKED_AT_S = 86_400.0
MERGE_HARMS = "merge-harms"
RECENT = 1_000  # decisions that are looked through for what has been told
LABELLED_LEAST, FELL_LEAST, DEVIATIONS, LOSS_FACTOR = 20, 0.1, 3.0, 2.0

_log = structlog.get_logger(__name__)


def told_of(store: Store, gateway: str, gone: str | None) -> str | None:
    """What was told of the merge by which a cohort ended, if it made this gateway worse; ``None``: nothing lately."""
    told = [each for each in store.decisions.recent(limit=RECENT) if each.reason == MERGE_HARMS]
    mine = [each.detail for each in told if each.facts.get("gateway") == gateway and each.facts.get("gone") == gone]
    return mine[-1] if mine else None


def harm_words(known: Accuracies) -> str | None:
    """How much worse a gateway is off under the weights that it got; ``None``: it is not, or too little is known.

    Of labelled holdout samples, enough of them under each of both, the share that is right must have fallen by a tenth
    and by three standard errors; of a regression, of which nothing is ever right, the mean loss must have doubled.
    """
    if known.before is None or known.loss_before is None:
        return None
    if min(known.labelled, known.labelled_before) < LABELLED_LEAST:
        return None
    if known.before == known.now == 0:
        worse = known.loss_now > LOSS_FACTOR * known.loss_before
        told = f"holdout loss {known.loss_before:.4g} -> {known.loss_now:.4g}"
    else:
        pooled = (known.before + known.now) / 2
        error = math.sqrt(pooled * (1 - pooled) * (1 / known.labelled + 1 / known.labelled_before))
        worse = known.before - known.now > max(FELL_LEAST, DEVIATIONS * error)
        told = f"holdout accuracy {known.before:.0%} -> {known.now:.0%}"
    return f"{told}, of {known.labelled} labelled samples" if worse else None


class MergeVerdicts:
    """Tells once of each gateway that a merge has made worse, for a day after it.

    Args:
        store: requests, lineage, counts, decisions.
        releases: what is in force.
        wall: seconds since 1970.
        monotonic: seconds; it looks once a minute.
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
        self._due_s = float("-inf")
        self._told: set[tuple[int, str]] = set()

    def look(self) -> None:
        """Judge the merges of the last day by what has been counted since.

        Raises:
            StorageError: the disk or the database refuses.
        """
        if self._monotonic() < self._due_s:
            return
        self._due_s = self._monotonic() + LOOK_EVERY_S
        since_s = self._wall() - LOOKED_AT_S
        requests = [
            each for each in self._store.merges.all() if each.status == MERGED and (each.ended_s or 0) > since_s
        ]
        if not requests:
            return
        earlier = [each.facts for each in self._store.decisions.recent(limit=RECENT) if each.reason == MERGE_HARMS]
        self._told |= {(int(str(facts["request"])), str(facts["gateway"])) for facts in earlier}
        known = self._store.counts.accuracies()
        counted_last = dict(known.keys())  # gateway to weights: it may have run the same ones once before
        for request in requests:
            for gateway in self._movers(request):
                weights = released_weights(self._releases, request.bundle, gateway)
                found = known.get((gateway, weights or ""))
                words = harm_words(found) if found is not None and counted_last[gateway] == weights else None
                if words is not None and (request.id, gateway) not in self._told:
                    self._tell(request, gateway, words)

    def _movers(self, request: MergeRequest) -> list[str]:
        """Who went by this merge, and is where it went."""
        here = self._store.lineage.members(request.bundle)
        moves = self._store.lineage.moves(bundle=request.bundle)
        mine = [move for move in moves if move.reason == MERGE_ASKED and move.time_s == request.ended_s]
        return [each.gateway for each in mine if each.source == request.gone and here.get(each.gateway) == request.kept]

    def _tell(self, request: MergeRequest, gateway: str, words: str) -> None:
        detail = (
            f"{gateway}: {words}, since cohort {request.gone} went into {request.kept}, asked by {request.asked_by}; "
            "its next flag parts it again"
        )
        facts: dict[str, Fact] = {"request": request.id, "gateway": gateway, "gone": request.gone}
        self._store.decisions.record("cohorts", MERGE_HARMS, detail, self._wall(), facts=facts)
        self._told.add((request.id, gateway))
        _log.warning(MERGE_HARMS, gateway=gateway, cohort=request.gone, into=request.kept, found=words)
