"""From a gateway's outcome to what a strategy may use: screening."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.messages import Evaluate, EvaluateResult, Train, TrainFindings, TrainResult
from edge_agent.wire.roles import names_of, only
from edge_agent.wire.tensors import Weights
from edge_agent.wire.updates import decode_update
from server_bridge.aggregation.screening import (
    Refusal,
    check_copies,
    check_examples,
    check_moved,
    check_norms,
    tensors_norm,
)
from server_bridge.fleet.transport import Outcome
from server_bridge.flower.orders import Assignment
from server_bridge.flower.records import EXAMPLES_KEY, Metrics
from server_bridge.flower.settings import GridSettings


@dataclass(frozen=True, slots=True)
class NodeResult:
    """How one message of an exchange ended.

    Attributes:
        gateway: who.
        node_id: its Flower node id.
        command_id: the order's.
        kind: ``train`` or ``evaluate``.
        server_round: the round in the message's config.
        cohort: the cohort in the message's config.
        base: digest of the weights that were sent.
        base_weights: these weights; shared between gateways, not to be written to.
        reason: ``None`` if the strategy gets it, else a stable word.
        detail: the same for people.
        metrics: all that the gateway reported.
        update_norm: Euclidean length of the update, if it could be decoded.
        weights: base plus update, for a good train result, until a reply is made of it.
        fingerprint: of the update's values, if it could be decoded.
        carried: names of the tensors that the update has.
    """

    gateway: str
    node_id: int
    command_id: str
    kind: str
    server_round: int
    cohort: str
    base: str
    base_weights: Weights
    reason: str | None
    detail: str
    metrics: Metrics
    update_norm: float | None
    weights: Weights | None
    fingerprint: str | None = None
    carried: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether the strategy gets it."""
        return self.reason is None


def screen(assignments: Sequence[Assignment], outcomes: Sequence[Outcome], settings: GridSettings) -> list[NodeResult]:
    """Judge every outcome of an exchange.

    Args:
        assignments: what was asked.
        outcomes: how each ended, in the same order.
        settings: coding, tensors and limits.

    Returns:
        One result an assignment, in the same order; the bad ones with a reason and without weights.
    """
    results = [_read(a, o, settings) for a, o in zip(assignments, outcomes, strict=True)]
    arrived = {outcome.gateway: outcome.arrived_s for outcome in outcomes}
    in_order = sorted(results, key=lambda result: (arrived[result.gateway], result.gateway))
    copies = check_copies({r.gateway: r.fingerprint for r in in_order if r.ok and r.fingerprint is not None})
    results = [_refuse(r, copies[r.gateway]) if r.gateway in copies else r for r in results]
    decoded = [r for r in results if r.ok and r.update_norm is not None]
    refused: dict[str, Refusal] = {}
    for carried in dict.fromkeys(result.carried for result in decoded):
        refused |= _too_long([result for result in decoded if result.carried == carried], carried, settings)
    return [_refuse(r, refused[r.gateway]) if r.gateway in refused else r for r in results]


def _too_long(results: Sequence[NodeResult], carried: frozenset[str], settings: GridSettings) -> dict[str, Refusal]:
    """Of updates of the same tensors, those that are far longer than they can be."""
    lengths = {result.gateway: result.update_norm or 0.0 for result in results}
    bases = {id(result.base_weights): result.base_weights for result in results}
    base_lengths = {number: tensors_norm(only(base, carried)) for number, base in bases.items()}
    return check_norms(lengths, {r.gateway: base_lengths[id(r.base_weights)] for r in results}, settings.norms)


def _fingerprint(delta: Weights) -> str:
    """Of the decoded values: the same update can be compressed into different bytes."""
    return sha256_hex(b"".join(sha256_hex(delta[name].tobytes()).encode() for name in sorted(delta)))


def _refuse(result: NodeResult, refusal: Refusal) -> NodeResult:
    return replace(result, reason=refusal.reason, detail=refusal.detail, weights=None)


def _read(assignment: Assignment, outcome: Outcome, settings: GridSettings) -> NodeResult:
    result = NodeResult(
        gateway=assignment.gateway.id,
        node_id=assignment.gateway.node_id,
        command_id=assignment.order.command_id,
        kind=assignment.order.action.kind,
        server_round=assignment.server_round,
        cohort=assignment.cohort,
        base=assignment.base_digest,
        base_weights=assignment.base,
        reason=None,
        detail="",
        metrics={},
        update_norm=None,
        weights=None,
    )
    if outcome.failure is not None:
        found = outcome.reply.result if outcome.reply is not None else None
        metrics = dict(found.metrics) if isinstance(found, TrainFindings) else {}
        return _refuse(replace(result, metrics=metrics), Refusal(outcome.failure, outcome.detail))
    reply = outcome.reply
    if reply is None or reply.status != "ok" or reply.result is None:
        return _refuse(result, Refusal("bad-reply", "no result"))
    action, answer = assignment.order.action, reply.result
    if isinstance(action, Train) and isinstance(answer, TrainResult):
        result = replace(result, metrics=dict(answer.metrics))
        refusal = _mismatch(assignment, answer, settings) or check_examples(
            answer.metrics.get(EXAMPLES_KEY), at_most=action.max_samples
        )
        specs = settings.specs_of(action.training_graph)
        return _refuse(result, refusal) if refusal else _decode(result, outcome, answer, settings, specs)
    if isinstance(action, Evaluate) and isinstance(answer, EvaluateResult):
        result = replace(result, metrics=dict(answer.metrics))
        refusal = _other_weights(assignment, answer) or check_examples(
            answer.metrics.get(EXAMPLES_KEY), at_most=action.max_samples
        )
        return _refuse(result, refusal) if refusal else result
    return _refuse(result, Refusal("bad-reply", f"a {answer.kind} result answers a {action.kind} command"))


def _mismatch(assignment: Assignment, answer: TrainResult, settings: GridSettings) -> Refusal | None:
    if answer.round != assignment.server_round:
        return Refusal("stale-round", f"the result is of round {answer.round}, not {assignment.server_round}")
    if answer.cohort != assignment.cohort:
        return Refusal("stale-cohort", f"the result is of cohort {answer.cohort!r}, not {assignment.cohort!r}")
    if answer.update.base != assignment.base_digest:
        return Refusal("stale-base", f"the update is from {answer.update.base[:12]}, not {assignment.base_digest[:12]}")
    if answer.update.coding != settings.coding:
        return Refusal("bad-manifest", f"the update is coded {answer.update.coding}, not {settings.coding}")
    return None


def _other_weights(assignment: Assignment, answer: EvaluateResult) -> Refusal | None:
    if answer.weights != assignment.base_digest:
        return Refusal("stale-base", f"weights {answer.weights[:12]} were evaluated, not {assignment.base_digest[:12]}")
    return None


def _decode(
    result: NodeResult, outcome: Outcome, answer: TrainResult, settings: GridSettings, specs: Sequence[TrainableSpec]
) -> NodeResult:
    if outcome.update is None:
        return _refuse(result, Refusal("bad-update", "the update did not come"))
    if sha256_hex(outcome.update) != answer.update.digest:
        return _refuse(result, Refusal("bad-update", "the update's digest is not the manifest's"))
    try:
        delta = decode_update(outcome.update, settings.coding, specs)
    except WireError as error:
        return _refuse(result, Refusal("bad-tensors", error.problem))
    with np.errstate(over="ignore", invalid="ignore"):
        moved = {name: result.base_weights[name] + tensor for name, tensor in delta.items()}
    weights = {name: moved.get(name, tensor) for name, tensor in result.base_weights.items()}
    result = replace(
        result,
        update_norm=tensors_norm(delta),
        weights=weights,
        fingerprint=_fingerprint(delta),
        carried=names_of(specs),
    )
    if not all(np.isfinite(tensor).all() for tensor in moved.values()):
        return _refuse(result, Refusal("bad-norm", "base plus update is not finite"))
    refusal = check_moved(result.update_norm or 0.0)
    return _refuse(result, refusal) if refusal else result
