"""Gateways that trained different tensors: each tensor's mean is of those that trained it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from edge_agent.wire.tensors import Weights
from server_bridge.aggregation.means import weighted_mean
from server_bridge.flower.records import EXAMPLES_KEY
from server_bridge.flower.replies import NodeResult


def stand_in(results: Sequence[NodeResult]) -> list[NodeResult]:
    """Fill what a gateway did not train with the mean of those that did.

    A strategy averages whole models. A gateway that trained one task would count in another task's mean with the
    weights that it was sent, and hold it back. With the mean of the others in that place it does not count there: a
    mean by example counts is then, tensor by tensor, that of the gateways that trained it, whatever the strategy makes
    of it afterwards. A tensor that nobody of the cohort trained stays as it was sent.

    Args:
        results: of one exchange; those without weights, and an exchange where all trained the same, are left alone.

    Source: FedAvg of P_t over the clients that worked on task t, eq. 7 of the federated continual learning paper,
        as a mean by example counts.
    """
    groups: dict[tuple[str, str], list[NodeResult]] = {}
    for result in results:
        if result.ok and result.weights is not None:
            groups.setdefault((result.cohort, result.base), []).append(result)
    filled = {result.gateway: result for members in groups.values() for result in _filled(members)}
    return [filled.get(result.gateway, result) for result in results]


def _filled(members: list[NodeResult]) -> list[NodeResult]:
    carried = {name for member in members for name in member.carried}
    if all(member.carried == carried for member in members):
        return members
    means = {name: _mean(name, members) for name in carried}
    return [
        replace(
            member, weights=_with(member.weights or {}, {n: m for n, m in means.items() if n not in member.carried})
        )
        for member in members
    ]


def _mean(name: str, members: Sequence[NodeResult]) -> Weights:
    own = [member for member in members if name in member.carried and member.weights is not None]
    models = [{name: member.weights[name]} for member in own if member.weights is not None]
    return weighted_mean(models, [float(cast(float, member.metrics[EXAMPLES_KEY])) for member in own])


def _with(weights: Weights, means: dict[str, Weights]) -> Weights:
    return {name: means[name][name] if name in means else tensor for name, tensor in weights.items()}
