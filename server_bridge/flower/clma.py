"""CLMA as a strategy of Flower: Algorithm 1, with Algorithm 3 behind a cohorter."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Unpack

import structlog
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from edge_agent.errors import DataError
from server_bridge.aggregation.robust import Aggregation
from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.candidate_choice import CandidateRule
from server_bridge.cohorts.cohorter import ClientId, Cohorter
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from server_bridge.cohorts.membership import ROOT, CohortId, CohortRegistry, Model, Reason
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import ReturnRule
from server_bridge.cohorts.selectors import DefaultSelector, ParamSelector
from server_bridge.flower.addressing import Addressing
from server_bridge.flower.defence import Defence
from server_bridge.flower.departures import Departures, departures
from server_bridge.flower.drifts import DriftBook, Flagged
from server_bridge.flower.fedavg_options import FedAvgOptions
from server_bridge.flower.formation import Formation
from server_bridge.flower.known import KnownConcepts
from server_bridge.flower.mixtures import MixtureRule, MixtureWatch
from server_bridge.flower.parts import Parts
from server_bridge.flower.records import (
    common_metrics,
    to_metric_record,
    to_record,
    to_tensors,
)
from server_bridge.flower.state import StrategyState
from server_bridge.flower.steps import TAKEN_BACK, StepGuard, StepRule
from server_bridge.flower.updates import ClientUpdate, read_replies

logger = structlog.get_logger(__name__)


class CLMA(FedAvg):
    """Collaborative model adaptation, a drop-in for Flower's FedAvg.

    Every client is sent the weights of its cohort. Clients that drifted leave their cohorts before
    these are averaged and are regrouped by how they drifted; each group becomes a cohort. Replies
    that cannot be averaged are left out and named in :attr:`refused`; they never end the run.

    ``aggregate_train`` returns the reference model W, the mean of all replies, as the reference
    package does; what clients train is in :attr:`registry`.

    Args:
        cohorter: Algorithm 3; :class:`FamilyCohorter` if not given.
        param_selector: the tensors it compares; all but BatchNorm statistics if not given.
        merge_cohorts_threshold: cohorts whose weights lie within this cosine distance merge at a
            round's end (ours); those split off in the same round do not. ``None`` for never.
        reconverged: the same for the cohorts' changes from the root's weights; the root takes no part.
            Weights are alike for what cohorts began with, changes for where they went.
        flagged: round to the node ids that drifted; overrules the clients' ``clma-drift``.
        loss_gamma: Algorithm 2 on the server: a client drifted if its ``clma-loss`` is above that
            of its round before by more than this. It never moves a client that this adaptation
            has already regrouped. ``None`` for off.
        new_cohort_id: names new cohorts; ``c1``, ``c2`` ... if not given, and clients are then told
            their number, 0 for the root, as the reference package does.
        aggregation: how every cohort's mean is formed; by example counts if not given.
        return_rule: when a small cohort that split off goes back (ours); ``None`` for never.
        defence: what shortens or leaves out updates beside the others of their cohort (ours); nothing if not given.
        recognition: when a group that drifted joins a living cohort instead of beginning one, from
            its weights alone (ours); ``None`` for never.
        candidates: so many living cohorts' models are evaluated by a flagged client before it
            trains, and it trains in the best if that is good enough (ours). Needs ``flagged``; 0
            for none.
        candidate_rule: what is good enough.
        best_start: flagged clients for whose drift none is good enough train, in the round that regroups them,
            from the one of these models that has clearly the least loss on their samples, or from the root's if none
            is below the rule's chance (ours). Needs candidates.
        step_rule: when a cohort's step is taken back because most of its members report it as worse (ours);
            ``None`` for never.
        mixture_rule: when a cohort's members are regrouped as if some had flagged because its model cannot serve them
            all (ours); ``None`` for never.
        kwargs: FedAvg's.

    Raises:
        ValueError: candidates without ``flagged``: who drifted is then known too late; ``best_start`` without these.

    Source: N L et al. 2024, Algorithms 1 and 2.
    """

    def __init__(
        self,
        cohorter: Cohorter | None = None,
        param_selector: ParamSelector | None = None,
        merge_cohorts_threshold: float | None = None,
        *,
        flagged: Flagged | None = None,
        loss_gamma: float | None = None,
        new_cohort_id: Callable[[], CohortId] | None = None,
        aggregation: Aggregation | None = None,
        return_rule: ReturnRule | None = None,
        reconverged: float | None = None,
        defence: Defence | None = None,
        recognition: RecognitionRule | None = None,
        candidates: int = 0,
        candidate_rule: CandidateRule | None = None,
        best_start: bool = False,
        step_rule: StepRule | None = None,
        mixture_rule: MixtureRule | None = None,
        **kwargs: Unpack[FedAvgOptions],
    ) -> None:
        super().__init__(**kwargs)
        if candidates < 0 or (candidates and flagged is None):
            raise ValueError("candidates must not be negative, and need flagged: they are evaluated before a round")
        if best_start and not candidates:
            raise ValueError("best_start needs candidates: the best of what is evaluated")
        self.cohorter = cohorter or FamilyCohorter()
        self.param_selector = param_selector or DefaultSelector()
        self.merge_cohorts_threshold = merge_cohorts_threshold
        self.reconverged = reconverged
        self.aggregation = aggregation or Aggregation()
        self.registry = CohortRegistry(new_cohort_id)
        known = KnownConcepts(
            recognition, candidates, candidate_rule or CandidateRule(), self.param_selector, best_start
        )
        self._parts = Parts(
            registry=self.registry,
            drifts=DriftBook(flagged, loss_gamma),
            known=known,
            formation=Formation(self.registry, self.param_selector, known, return_rule, recognition, self._model_of),
            defence=defence or Defence(),
            steps=StepGuard(step_rule),
            mixtures=MixtureWatch(mixture_rule, self.cohorter, self.param_selector),
        )
        self._addressing = Addressing(
            self.registry, self.arrayrecord_key, self.configrecord_key, numbered=new_cohort_id is None
        )
        self._reference: Model | None = None
        self._sent: dict[ClientId, tuple[CohortId, Model]] = {}
        self._refused: dict[ClientId, Refusal] = {}

    @property
    def cohort_history(self) -> list[dict[ClientId, CohortId]]:
        """Client to cohort after each round."""
        return self.registry.history

    @property
    def reference(self) -> Model | None:
        """The reference model W, once a round has ended."""
        return self._reference

    @property
    def refused(self) -> dict[ClientId, Refusal]:
        """Replies of the latest round that were left out, and why."""
        return dict(self._refused)

    @property
    def noted(self) -> dict[ClientId, Refusal]:
        """Whose update of the latest round was shortened before it counted, and why."""
        return self._parts.defence.noted

    @property
    def regrouped(self) -> set[ClientId]:
        """Clients that this adaptation has regrouped."""
        return self._parts.drifts.regrouped

    def place(self, members: Mapping[ClientId, CohortId], models: Mapping[CohortId, Model]) -> None:
        """Take membership and weights from elsewhere, such as the releases in force.

        Args:
            members: client to cohort; others stay where they are.
            models: weights by cohort.

        Raises:
            DataError: a client is placed in a cohort without weights.
        """
        for cohort, model in models.items():
            self.registry.set_params(cohort, model)
        for client, cohort in members.items():
            if not (cohort in self.registry.cohort_ids and self.registry.params(cohort)):
                raise DataError(f"client {client} is placed in cohort {cohort!r}, which has no weights")
            self.registry.place(client, cohort)
        self.registry.prune_empty()

    def end_adaptation(self) -> None:
        """Forget what counts within one adaptation: losses, who was regrouped, the reference."""
        self._parts.end_adaptation()
        self._reference = None
        self._sent.clear()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message a sampled client with its cohort's weights; ``arrays`` begins the root cohort."""
        self.registry.begin_round(server_round)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        clients = [message.metadata.dst_node_id for message in messages]
        self._enter(clients, arrays)
        flagged = self._parts.drifts.announced(server_round) & set(clients)
        self._ask(server_round, flagged, set(clients), grid)
        starts = self._parts.known.starts
        self._addressing.address(messages, starts)
        self._sent = {client: self._current(client) for client in clients}
        self._sent |= {client: (cohort, self.registry.params(cohort)) for client, cohort in starts.items()}
        if isinstance(self.cohorter, Cohorter) and self.cohorter.uses_reliability:
            settled = self._parts.known.moved | self._parts.known.stayed | self.regrouped
            self._addressing.ask_reliability(messages, flagged - settled)
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message a sampled client with its cohort's weights."""
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        self._enter([message.metadata.dst_node_id for message in messages], arrays)
        self._addressing.address(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Algorithm 1 from the replies on."""
        updates = self._read(replies)
        if not updates:
            self.registry.snapshot()
            return None, None
        reference = self._reference or self._mean_of([u.base for u in updates], updates)
        leaving = departures(self._parts, server_round, updates)
        self._refuse(leaving.refused)
        updates = leaving.counting(updates)
        created, merged = self._regroup(updates, leaving, reference)
        self._parts.forget()
        self.registry.snapshot()
        self._reference = self._mean_of([u.params for u in self._parts.defence.as_counted(updates)], updates)
        metrics = self.train_metrics_aggr_fn(_contents(updates), self.weighted_by_key)
        metrics.update(self._counts(leaving, len(created), merged))
        return to_record(self._reference), metrics

    def _regroup(
        self, updates: Sequence[ClientUpdate], leaving: Departures, reference: Model
    ) -> tuple[list[CohortId], int]:
        """Average who stays and group who leaves; the new cohorts, and how many have merged."""
        for client in sorted(leaving.leaving):
            self.registry.quarantine(client)
        self._average([update for update in updates if update.client not in leaving.leaving], leaving.back)
        created = self._parts.formation.regroup(self.cohorter, updates, leaving.regrouped, reference)
        created += [self._parts.formation.part(group) for group in leaving.refuted]
        self._parts.drifts.regroup(leaving.regrouped)
        self.registry.clear_quarantine()
        self.registry.prune_empty()
        self._parts.formation.dissolve(updates, created)
        return created, self._merge(created)

    def _counts(self, leaving: Departures, created: int, merged: int) -> dict[str, int]:
        """What a round did to the cohorts, as metrics."""
        recognised = {move.client for move in self.registry.round_moves if move.reason == "recognised"}
        counts = {
            "clma-num-cohorts": len(self.registry.cohort_ids),
            "clma-num-drifted": len(leaving.regrouped | recognised),
            "clma-num-new-cohorts": created,
            "clma-num-merged-cohorts": merged,
        }
        if leaving.back:
            counts["clma-num-steps-back"] = len(leaving.back)
        if self._parts.known.active:
            counts["clma-num-recognised"] = len(recognised)
        return counts

    def export_state(self) -> StrategyState:
        """All that is remembered between two rounds."""
        return self._parts.export(self._reference)

    def import_state(self, state: StrategyState) -> None:
        """Go on from where :meth:`export_state` was called.

        Raises:
            DataError: the state is not of this strategy.
        """
        self._reference = self._parts.restore(state)
        self._sent.clear()

    def export_memory(self) -> StrategyState:
        """What the next adaptation needs to know of this one, beside memberships and weights."""
        return self._parts.export_memory()

    def import_memory(self, memory: StrategyState) -> None:
        """Know what an adaptation before left, after :meth:`place`.

        Raises:
            DataError: it is not of this strategy.
        """
        self._parts.restore_memory(memory)

    def _enter(self, clients: Iterable[ClientId], arrays: ArrayRecord) -> None:
        self.registry.ensure_root(sorted(clients))
        if not self.registry.params(ROOT):
            self.registry.set_params(ROOT, to_tensors(arrays))

    def _ask(self, server_round: int, flagged: Set[ClientId], sampled: Set[ClientId], grid: Grid) -> None:
        """Let flagged clients, and members of small cohorts whose split was doubtful, evaluate known models."""
        self._parts.known.begin_round()
        if not self._parts.known.asks:
            return
        due = self._parts.formation.due()
        doubtful = {client for cohort in due for client in self.registry.members(cohort)} & sampled
        reasons: dict[ClientId, Reason] = {
            **dict.fromkeys(doubtful, "returned"),
            **dict.fromkeys(flagged, "recognised"),
        }
        preferred = self._parts.known.ask(server_round, reasons, self.registry, grid, self._addressing.numbered)
        self._parts.formation.looked_at(due, preferred)
        for client in self._parts.known.moved:
            self._parts.formation.confirm(preferred[client])
        self.registry.prune_empty()

    def _read(self, replies: Iterable[Message]) -> list[ClientUpdate]:
        """Usable replies in the order of client ids; the rest goes to :attr:`refused`."""
        self._refused = {}
        updates, refused = read_replies(
            replies, lambda client: self._sent.get(client) or self._current(client), self.weighted_by_key
        )
        self._refuse(refused)
        self.registry.ensure_root([update.client for update in updates])
        return updates

    def _refuse(self, refused: Mapping[ClientId, Refusal]) -> None:
        """Tell of replies that do not count."""
        for client, refusal in refused.items():
            logger.warning("reply_not_averaged", node=client, reason=refusal.reason, detail=refusal.detail)
        self._refused |= refused

    def _current(self, client: ClientId) -> tuple[CohortId, Model]:
        self.registry.ensure_root([])
        cohort = self.registry.cohort_of(client)
        return cohort, self.registry.params(cohort)

    def _average(self, updates: Sequence[ClientUpdate], back: Mapping[CohortId, Model]) -> None:
        """Give cohorts their members' mean, or let them go back a step."""
        for cohort in self.registry.cohort_ids:
            mine = [update for update in updates if self.registry.cohort_of(update.client) == cohort]
            if cohort in back:
                self.registry.set_params(cohort, back[cohort])
                self._parts.defence.note({update.client: TAKEN_BACK for update in mine})
                logger.info("step_taken_back", cohort=cohort, members=[update.client for update in mine])
            elif mine:
                self.registry.set_params(cohort, self._parts.steps.step(cohort, mine[0].base, self._model_of(mine)))

    def _model_of(self, group: Sequence[ClientUpdate]) -> Model:
        models = [update.params for update in self._parts.defence.counted(group)]
        return self.aggregation.combine(models, self._parts.defence.weights(group))

    def _mean_of(self, models: Sequence[Mapping[str, NDArray[Any]]], updates: Sequence[ClientUpdate]) -> Model:
        return self.aggregation.combine(models, [update.examples for update in updates])

    def _merge(self, created: Sequence[CohortId]) -> int:
        merged: dict[CohortId, CohortId] = {}
        for threshold, origin in ((self.merge_cohorts_threshold, None), (self.reconverged, ROOT)):
            if threshold is not None and (origin is None or self.registry.params(origin)):
                merged |= self.registry.merge_similar(self.param_selector, threshold, spared=created, origin=origin)
        for gone, kept in merged.items():
            logger.info("cohorts_merged", cohort=gone, into=kept)
        return len(merged)


def _contents(updates: Sequence[ClientUpdate]) -> list[RecordDict]:
    """Replies' metrics in the one form that flwr's aggregation can take."""
    metrics = [dict(update.metrics) for update in updates]
    return [RecordDict({"metrics": to_metric_record(shared)}) for shared in common_metrics(metrics)]
