"""Strategies by name, and what they remember."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flwr.serverapp.strategy import FedAdam, FedAvg

from edge_agent.errors import ConfigError, DataError
from edge_agent.wire.manifest import TrainableSpec
from server_bridge.aggregation.lengths import LengthRule
from server_bridge.aggregation.opposition import OppositionRule
from server_bridge.aggregation.robust import HOSTILE_SHARE, Aggregation, RuleName
from server_bridge.cohorts.candidate_choice import CANDIDATE_DELTA, CandidateRule
from server_bridge.cohorts.clustering import AutoKMeans
from server_bridge.cohorts.cohorter import CLMACohorter, Cohorter
from server_bridge.cohorts.cosine import CosineCohorter
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import RETURN_ROUNDS, ReturnRule
from server_bridge.cohorts.selectors import AllParams, DefaultSelector, Moved, ParamSelector
from server_bridge.flower.averaged_statistics import AveragedStatistics
from server_bridge.flower.clma import CLMA
from server_bridge.flower.defence import Defence
from server_bridge.flower.drifts import Flagged
from server_bridge.flower.fedavg_options import FedAvgOptions
from server_bridge.flower.mixtures import MixtureRule
from server_bridge.flower.near_copies import NearCopyRule
from server_bridge.flower.state import StrategyState
from server_bridge.flower.steps import StepRule

StrategyName = Literal["clma", "clma-paper", "fedavg", "fedadam"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Which strategy, and its parameters.

    Attributes:
        name: ``clma``, ``clma-paper`` (Algorithm 3 as published), ``fedavg`` or ``fedadam``.
        cut: least mean cosine inside a cohort (``clma``); ``None`` decides by the evidence instead.
        merge_threshold: cosine distance of the cohorts' changes from the root's weights at which they
            merge; ``None`` for never (``clma*``).
        algorithm2: whether rises of a client's loss count as drift (``clma*``).
        gamma: the rise that counts.
        learning_rate: the server's (``fedadam``).
        beta_1: momentum (``fedadam``).
        beta_2: of the second moment (``fedadam``).
        tau: adaptivity; decides the result, so it is always stated (``fedadam``).
        min_nodes: fewer gateways online than this, and no round begins.
        aggregation: how each cohort's mean is formed: ``mean``, ``trimmed-mean``, ``median`` or
            ``krum`` (``clma*``).
        hostile_share: the share of a cohort that trimmed mean, Krum and ``part_opposing`` withstand.
        part_opposing: whether a gateway that works against the others of its cohort is regrouped as if it had
            flagged, and left out of the mean where it was regrouped before (``clma``), although no member of the
            cohort has told of harm.
        part_mixed: whether a cohort whose members' updates cancel each other in groups is regrouped though nobody
            flagged (``clma``).
        return_rounds: a small cohort that split off goes back if its change agrees with another's
            in so many rounds in a row; 0 for never (``clma``).
        recognition: whether drifted clients join the cohort that their changes point to (``clma``).
        candidates: how many cohorts' models a flagged client evaluates before a round (``clma*``).
        candidate_delta: the loss that a known model may have above its level.
        chance_loss: of a model that knows nothing, ln(classes) for cross-entropy; ``None`` if not known.
        best_start: whether flagged clients for whom none of these is good enough train from the best (``clma*``).
    """

    name: StrategyName = "clma"
    cut: float | None = None
    merge_threshold: float | None = None
    algorithm2: bool = False
    gamma: float = 0.1
    learning_rate: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    min_nodes: int = 1
    aggregation: RuleName = "mean"
    hostile_share: float = HOSTILE_SHARE
    part_opposing: bool = False
    part_mixed: bool = True
    return_rounds: int = RETURN_ROUNDS
    recognition: bool = True
    candidates: int = 0
    candidate_delta: float = CANDIDATE_DELTA
    best_start: bool = False
    chance_loss: float | None = None


def make_strategy(
    settings: StrategySettings,
    *,
    flagged: Flagged | None = None,
    new_cohort_id: Callable[[], str] | None = None,
    carried: Sequence[TrainableSpec] | None = None,
) -> FedAvg:
    """A fresh strategy.

    Args:
        settings: which.
        flagged: round to drifted node ids (``clma*``).
        new_cohort_id: names new cohorts (``clma*``).
        carried: the tensors of the rounds' updates; all if not given (``clma*`` compares gateways by these).

    Raises:
        ConfigError: an unknown name or a parameter outside its range.
    """
    nodes = FedAvgOptions(
        min_train_nodes=settings.min_nodes,
        min_evaluate_nodes=settings.min_nodes,
        min_available_nodes=settings.min_nodes,
    )
    if settings.name in ("fedavg", "fedadam"):
        _refuse_for_cohorts(settings)
    if settings.name == "fedavg":
        return FedAvg(**nodes)
    if settings.name == "fedadam":
        options: dict[str, Any] = {"eta": settings.learning_rate, "beta_1": settings.beta_1, "beta_2": settings.beta_2}
        options |= {"tau": settings.tau, **nodes}
        statistics = [spec.name for spec in carried or () if spec.statistic]
        return AveragedStatistics(statistics, **options) if statistics else FedAdam(**options)
    if settings.name not in ("clma", "clma-paper"):
        raise ConfigError(f"strategy {settings.name!r} is unknown", "one of clma, clma-paper, fedavg, fedadam")
    if settings.best_start and not settings.candidates:
        raise ConfigError("strategy.best_start needs strategy.candidates", "say how many models a gateway evaluates")
    paper = settings.name == "clma-paper"
    try:
        cohorter = _cohorter(settings)
    except ValueError as error:
        raise ConfigError(f"strategy.cut: {error}") from error
    try:
        aggregation = Aggregation(settings.aggregation, settings.hostile_share)
    except ValueError as error:
        raise ConfigError(f"strategy: {error}") from error
    return CLMA(
        cohorter=cohorter,
        param_selector=_selector(carried, paper=paper),
        reconverged=settings.merge_threshold,
        flagged=flagged,
        loss_gamma=settings.gamma if settings.algorithm2 else None,
        new_cohort_id=new_cohort_id,
        aggregation=aggregation,
        return_rule=None if paper or settings.return_rounds == 0 else ReturnRule(rounds=settings.return_rounds),
        defence=_defence(settings),
        recognition=RecognitionRule() if settings.recognition and not paper else None,
        candidates=settings.candidates,
        candidate_rule=CandidateRule(delta=settings.candidate_delta, chance=settings.chance_loss or math.inf),
        best_start=settings.best_start,
        step_rule=None if paper else StepRule(),
        mixture_rule=MixtureRule() if settings.part_mixed and not paper else None,
        **nodes,
    )


def _refuse_for_cohorts(settings: StrategySettings) -> None:
    if settings.aggregation != "mean":
        raise ConfigError(
            f"strategy.aggregation {settings.aggregation!r} is not for {settings.name}", "use it with name = clma"
        )
    for key in ("candidates", "part_opposing", "best_start"):
        if getattr(settings, key):
            raise ConfigError(f"strategy.{key} is not for {settings.name}", "it has no cohorts: use name = clma")


def _selector(carried: Sequence[TrainableSpec] | None, *, paper: bool) -> ParamSelector | None:
    """The paper compares every parameter; ours leaves statistics out. What no gateway sends is the same everywhere."""
    if carried is None:
        return AllParams() if paper else None
    if paper:
        return Moved(AllParams(), [spec.name for spec in carried])
    return Moved(DefaultSelector(), [spec.name for spec in carried if not spec.statistic])


def _defence(settings: StrategySettings) -> Defence:
    if settings.name == "clma-paper":
        return Defence()
    opposition = OppositionRule(settings.hostile_share)
    return Defence(LengthRule(), opposition, NearCopyRule(), unharmed=settings.part_opposing)


def _cohorter(settings: StrategySettings) -> Cohorter:
    if settings.name == "clma-paper":
        return CLMACohorter(center=False, clusterer=AutoKMeans(fixed_k=2))
    return FamilyCohorter() if settings.cut is None else CosineCohorter(settings.cut)


def export_strategy(strategy: FedAvg) -> StrategyState:
    """What a strategy remembers between two rounds; nothing for plain FedAvg."""
    if isinstance(strategy, CLMA):
        return strategy.export_state()
    if isinstance(strategy, FedAdam):
        moments = {"m": strategy.m_t, "v": strategy.v_t}
        return StrategyState(
            tensors={
                name: {key: np.asarray(tensor) for key, tensor in moment.items()}
                for name, moment in moments.items()
                if moment
            }
        )
    return StrategyState()


def import_strategy(strategy: FedAvg, state: StrategyState) -> None:
    """Let a fresh strategy of the same settings go on.

    Raises:
        DataError: the state is another strategy's.
    """
    if isinstance(strategy, CLMA):
        strategy.import_state(state)
    elif isinstance(strategy, FedAdam):
        if state.document or set(state.tensors) - {"m", "v"}:
            raise DataError("the stored state is not FedAdam's")
        strategy.m_t = state.tensors.get("m")
        strategy.v_t = state.tensors.get("v")
    elif state.document or state.tensors:
        raise DataError(f"the stored state is not {type(strategy).__name__}'s")


def export_memory(strategy: FedAvg) -> StrategyState | None:
    """What a strategy's next adaptation needs of this one, which ends with that; ``None`` for nothing."""
    if not isinstance(strategy, CLMA):
        return None
    strategy.end_adaptation()
    return strategy.export_memory()


def import_memory(strategy: FedAvg, memory: StrategyState) -> None:
    """Let a strategy that has been placed know what an adaptation before left.

    Raises:
        DataError: the memory is another strategy's.
    """
    if isinstance(strategy, CLMA):
        strategy.import_memory(memory)
