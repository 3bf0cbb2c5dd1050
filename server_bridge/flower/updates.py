"""Clients' replies as CLMA sees them, checked."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord
from numpy.typing import NDArray

from server_bridge.aggregation.screening import Refusal, check_examples, check_like
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.flower.records import DRIFT_KEY, LOSS_KEY, RELIABILITY_KEY, to_tensors

Model = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ClientUpdate:
    """What one client sent back.

    Attributes:
        client: its node id.
        cohort: the cohort whose weights it was sent.
        base: those weights.
        params: its trained weights.
        examples: its weight in averages, positive.
        drifted: whether it says that it drifted.
        loss: its loss, if it gave a finite one.
        reliability: the cosine of updates from two halves of its data, if it gave one.
        metrics: all that it reported in the reply's metric record.
    """

    client: ClientId
    cohort: str
    base: Model
    params: dict[str, NDArray[Any]]
    examples: float
    drifted: bool
    loss: float | None
    reliability: float | None
    metrics: MetricRecord


def read_update(message: Message, cohort: str, base: Model, examples_key: str) -> ClientUpdate | Refusal:
    """A reply with content as an update, or why it cannot be averaged.

    Args:
        message: the reply.
        cohort: the cohort whose weights its client was sent.
        base: those weights.
        examples_key: the metric that weighs it.
    """
    arrays = list(message.content.array_records.values())
    if len(arrays) != 1 or len(message.content.metric_records) != 1:
        return Refusal("bad-records", "a reply needs one array record and one metric record")
    metrics = next(iter(message.content.metric_records.values()))
    examples = _value(message, metrics, examples_key)
    params = to_tensors(arrays[0])
    refusal = check_examples(examples) or check_like(params, base)
    if refusal is not None or not isinstance(examples, int | float):
        return refusal or Refusal("bad-examples", f"{examples_key} is {examples!r}")
    return ClientUpdate(
        client=message.metadata.src_node_id,
        cohort=cohort,
        base=base,
        params={name: params[name].astype(base[name].dtype, copy=False) for name in base},
        examples=float(examples),
        drifted=_finite(_value(message, metrics, DRIFT_KEY)) not in (None, 0.0),
        loss=_finite(_value(message, metrics, LOSS_KEY)),
        reliability=_finite(_value(message, metrics, RELIABILITY_KEY)),
        metrics=metrics,
    )


def read_replies(
    replies: Iterable[Message], sent: Callable[[ClientId], tuple[str, Model]], examples_key: str
) -> tuple[list[ClientUpdate], dict[ClientId, Refusal]]:
    """All of a round's replies.

    Args:
        replies: in any order; of one client's the last counts.
        sent: the cohort and the weights that a client was sent.
        examples_key: the metric that weighs a reply.

    Returns:
        The usable ones in the order of client ids, and why the others cannot be averaged.
    """
    refused: dict[ClientId, Refusal] = {}
    updates: dict[ClientId, ClientUpdate] = {}
    for reply in replies:
        client = reply.metadata.src_node_id
        if reply.has_error():
            refused[client] = Refusal("error", str(reply.error.reason))
            continue
        update = read_update(reply, *sent(client), examples_key)
        if isinstance(update, Refusal):
            refused[client] = update
        else:
            updates[client] = update
    return [updates[client] for client in sorted(updates)], refused


def _value(message: Message, metrics: MetricRecord, name: str) -> object:
    """A metric, also where the grid moved it aside because other replies lack it."""
    if name in metrics:
        return metrics[name]
    configs: list[ConfigRecord] = list(message.content.config_records.values())
    return next((config[name] for config in configs if name in config), None)


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
