"""Clients' replies as CLMA sees them, checked."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord
from numpy.typing import NDArray

from server_bridge.aggregation.screening import Refusal, check_examples, check_like
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.flower.records import DRIFT_KEY, LOSS_AFTER_KEY, LOSS_KEY, RELIABILITY_KEY, to_tensors

Model = Mapping[str, NDArray[Any]]
# Beyond these a claim is nonsense, and its products leave float64: float32 holds no larger loss and no weight near
# the fourth root of float64's end, and counts are exact up to there.
LARGEST_LOSS, LARGEST_WEIGHT, LARGEST_COUNT = float(np.finfo(np.float32).max), 1e60, 2**53


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
        loss: its loss, if it gave one that float32 holds.
        reliability: the cosine of updates from two halves of its data, if it gave one; in [-1, 1].
        metrics: all that it reported in the reply's metric record.
        loss_after: the loss that its trained weights have on the same samples, if it gave one.
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
    loss_after: float | None = None


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
    if examples > LARGEST_COUNT:
        return Refusal("bad-examples", f"{examples_key} is {examples}, more than anybody has")
    params = _like(params, base)
    if (refusal := _check_range(params)) is not None:
        return refusal
    loss, half = (_finite(_value(message, metrics, key)) for key in (LOSS_KEY, RELIABILITY_KEY))
    return ClientUpdate(
        client=message.metadata.src_node_id,
        cohort=cohort,
        base=base,
        params=params,
        examples=float(examples),
        drifted=_finite(_value(message, metrics, DRIFT_KEY)) not in (None, 0.0),
        loss=None if loss is None or abs(loss) > LARGEST_LOSS else loss,
        reliability=None if half is None else min(1.0, max(-1.0, half)),
        metrics=metrics,
        loss_after=_finite(_value(message, metrics, LOSS_AFTER_KEY)),
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


def _like(params: Model, base: Model) -> dict[str, NDArray[Any]]:
    """The tensors in the base's order and dtypes; what is too large for these becomes infinite."""
    with np.errstate(over="ignore"):
        return {name: params[name].astype(base[name].dtype, copy=False) for name in base}


def _check_range(params: Model) -> Refusal | None:
    """Refuse weights that sums of products cannot be made of; names the tensor."""
    for name, tensor in params.items():
        largest = max(float(tensor.max(initial=0)), -float(tensor.min(initial=0)))
        if largest > LARGEST_WEIGHT:
            return Refusal("bad-norm", f"tensor {name!r} has a value of size {largest:.3g}")
    return None


def _value(message: Message, metrics: MetricRecord, name: str) -> object:
    """A metric, also where the grid moved it aside because other replies lack it."""
    if name in metrics:
        return metrics[name]
    configs: list[ConfigRecord] = list(message.content.config_records.values())
    return next((config[name] for config in configs if name in config), None)


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
