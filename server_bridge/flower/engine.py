"""One round of an adaptation, so that its owner can store what it likes in between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies
from flwr.serverapp.strategy import FedAvg, Strategy

from edge_agent.errors import DataError, TransientError
from edge_agent.wire.codec import Scalar
from edge_agent.wire.roles import overlay
from edge_agent.wire.tensors import Weights
from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.membership import ROOT, Move
from server_bridge.flower.clma import CLMA
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import Metrics, as_float32, to_record, to_weights
from server_bridge.flower.replies import NodeResult

MOVED = ("drifted", "recognised")


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What a round brought. Gateways are named by their ids.

    Attributes:
        server_round: which.
        arrays: the weights to pass to the next round (the strategy's; CLMA: its root cohort's).
        cohort_weights: weights by cohort; only ``root`` for a strategy without cohorts.
        changed: cohorts whose weights this round changed, or that it began.
        assignments: every registered gateway's cohort.
        members: the cohorts of gateways that the strategy knows: it has placed, asked or heard them.
        metrics: the strategy's aggregated metrics; empty if nobody replied.
        ok: gateways whose reply was used.
        failed: gateway to ``reason: detail`` for the others that were asked.
        noted: gateway to ``reason: detail`` for those whose update was shortened before it counted.
        regrouped: gateways that this round moved to a new cohort, or to a known one, for their drift.
        moves: every change of cohort in this round (client: node id).
        results: how every message ended.
    """

    server_round: int
    arrays: Weights
    cohort_weights: dict[str, Weights]
    changed: frozenset[str]
    assignments: dict[str, str]
    members: dict[str, str]
    metrics: Metrics
    ok: tuple[str, ...]
    failed: dict[str, str]
    noted: dict[str, str]
    regrouped: frozenset[str]
    moves: tuple[Move, ...]
    results: tuple[NodeResult, ...]


def run_round(
    strategy: Strategy,
    grid: MqttGrid,
    arrays: Weights,
    server_round: int,
    train_config: Mapping[str, Scalar],
    timeout_s: float,
) -> RoundOutcome:
    """Send, train, collect, aggregate once.

    A round that was cut off is run again with the strategy's state of before: it makes the same
    commands, and gateways answer from their stored results.

    Args:
        strategy: any of Flower's message strategies.
        grid: the fleet.
        arrays: the weights that the round before passed on.
        server_round: from 1, never repeated within an adaptation but to resume.
        train_config: goes to every gateway.
        timeout_s: at most; who has not answered by then is left out.

    Raises:
        TransientError: too few gateways online.
        DataError: the strategy cannot aggregate these replies.
        ConfigError: the strategy sends what no command carries.
    """
    _enough_nodes(strategy, grid)
    before = _cohort_weights(strategy, arrays)
    record, metrics = _aggregate(strategy, grid, arrays, server_round, train_config, timeout_s)
    passed_on = arrays if record is None else to_weights(record)
    after = {
        cohort: overlay(weights, grid.settings.personal)
        for cohort, weights in _cohort_weights(strategy, passed_on).items()
    }
    results = grid.last_exchange
    failed = {r.gateway: f"{r.reason}: {r.detail}" for r in results if not r.ok}
    failed |= _named(strategy.refused, grid) if isinstance(strategy, CLMA) else {}
    moves = tuple(strategy.registry.round_moves) if isinstance(strategy, CLMA) else ()
    names = {gateway.node_id: gateway.id for gateway in grid.transport.gateways()}
    return RoundOutcome(
        server_round=server_round,
        arrays=after[ROOT],
        cohort_weights=after,
        changed=frozenset(name for name, weights in after.items() if _differ(before.get(name), weights)),
        assignments=_assignments(strategy, names),
        members=_members(strategy, names, results),
        metrics={} if metrics is None else dict(metrics),
        ok=tuple(r.gateway for r in results if r.gateway not in failed),
        failed=failed,
        noted=_named(strategy.noted, grid) if isinstance(strategy, CLMA) else {},
        regrouped=frozenset(names[m.client] for m in moves if m.reason in MOVED and m.client in names),
        moves=moves,
        results=tuple(results),
    )


def _enough_nodes(strategy: Strategy, grid: MqttGrid) -> None:
    if not isinstance(strategy, FedAvg):
        return
    online = len(list(grid.get_node_ids()))
    needed = max(strategy.min_available_nodes, strategy.min_train_nodes)
    if online < needed:
        raise TransientError(f"{online} gateways are online, the strategy needs {needed}")


def _aggregate(
    strategy: Strategy,
    grid: MqttGrid,
    arrays: Weights,
    server_round: int,
    train_config: Mapping[str, Scalar],
    timeout_s: float,
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    try:
        messages = strategy.configure_train(server_round, to_record(arrays), ConfigRecord(dict(train_config)), grid)
        return strategy.aggregate_train(server_round, grid.send_and_receive(messages, timeout=timeout_s))
    except (AggregationError, InconsistentMessageReplies, ArithmeticError, LookupError, ValueError) as error:
        name = type(strategy).__name__
        raise DataError(f"strategy {name} cannot aggregate round {server_round}: {error!r}") from error


def _cohort_weights(strategy: Strategy, arrays: Weights) -> dict[str, Weights]:
    if not isinstance(strategy, CLMA):
        return {ROOT: arrays}
    models = {cohort: strategy.registry.params(cohort) for cohort in strategy.registry.cohort_ids}
    weights = {cohort: as_float32(model) for cohort, model in models.items() if model}
    return {ROOT: arrays, **weights}


def _assignments(strategy: Strategy, names: Mapping[int, str]) -> dict[str, str]:
    if not isinstance(strategy, CLMA):
        return dict.fromkeys(sorted(names.values()), ROOT)
    cohorts = {name: strategy.registry.cohort_of(node) for node, name in names.items()}
    return dict(sorted(cohorts.items()))


def _members(strategy: Strategy, names: Mapping[int, str], results: Sequence[NodeResult]) -> dict[str, str]:
    if not isinstance(strategy, CLMA):
        return {result.gateway: ROOT for result in results}
    return {names[node]: cohort for node, cohort in strategy.registry.assignments.items() if node in names}


def _named(refusals: Mapping[int, Refusal], grid: MqttGrid) -> dict[str, str]:
    good = {result.node_id: result.gateway for result in grid.last_exchange if result.ok}
    return {good[n]: f"{r.reason}: {r.detail}" for n, r in refusals.items() if n in good}


def _differ(before: Weights | None, after: Weights) -> bool:
    return before is None or any(bool((before[name] != tensor).any()) for name, tensor in after.items())
