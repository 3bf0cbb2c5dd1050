"""Flower's records and our tensors; what a process must set up before it makes messages."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.supercore.run import Run as Run  # named by Grid's interface; here with all that is not public
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.wire.codec import Scalar
from edge_agent.wire.tensors import Weights
from server_bridge.cohorts.membership import ROOT

ARRAYS_KEY = "arrays"
CONFIG_KEY = "config"
METRICS_KEY = "metrics"
REPLY_KEY = "reply"
ROUND_KEY = "server-round"
COHORT_KEY = "clma-cohort"
CANDIDATE_KEY = "clma-candidate"
DRIFT_KEY = "clma-drift"
LOSS_KEY = "clma-loss"
LOSS_AFTER_KEY = "loss-after"
RELIABILITY_KEY = "clma-split-half"
EXAMPLES_KEY = "num-examples"
RUN_ID = 1  # one run and one task a process

MetricValue = int | float | list[int] | list[float]
Metrics = dict[str, MetricValue]


class _StructlogHandler(logging.Handler):
    """Hands flwr's lines to structlog: information as debug, the rest as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.DEBUG if record.levelno <= logging.INFO else record.levelno
        line = record.getMessage().strip()
        if line:
            structlog.get_logger("flwr").log(level, "flwr", line=line)


def prepare_process() -> None:
    """Give this process the identity that flwr's messages need, and route flwr's log to structlog."""
    TaskIdentity.task_id = RUN_ID
    TaskIdentity.run_id = RUN_ID
    TaskIdentity.node_id = RUN_ID
    logger = logging.getLogger("flwr")
    if not any(isinstance(handler, _StructlogHandler) for handler in logger.handlers):
        logger.handlers = [_StructlogHandler()]
        logger.propagate = False


def set_message_id(message: Message, message_id: str) -> None:
    """Name a message; flwr leaves that to its own transport and offers no setter."""
    message.metadata.__dict__["_message_id"] = message_id


def to_record(params: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Named tensors as a record, in their order."""
    return ArrayRecord({name: Array(np.ascontiguousarray(tensor)) for name, tensor in params.items()})


def to_tensors(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """A record's tensors as they are."""
    return {name: array.numpy() for name, array in record.items()}


def to_weights(record: ArrayRecord) -> Weights:
    """A record's tensors as float32: flwr's server optimisers return float64."""
    return as_float32(to_tensors(record))


def as_float32(params: Mapping[str, NDArray[Any]]) -> Weights:
    """A copy of named tensors as float32; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return {name: tensor.astype(np.float32) for name, tensor in params.items()}


def cohort_number(cohort: str) -> int | str:
    """What the reference package calls a cohort that we number: 0 for the root, else its number."""
    if cohort == ROOT:
        return 0
    return int(cohort[1:]) if cohort[:1] == "c" and cohort[1:].isdecimal() else cohort


def cohort_name(value: object) -> str:
    """Our name of a cohort that may be given by its number."""
    if isinstance(value, int):
        return f"c{value}" if value else ROOT
    return str(value)


def to_scalars(record: ConfigRecord) -> dict[str, Scalar]:
    """A config as the wire carries it.

    Raises:
        ConfigError: a value is bytes or a list.
    """
    scalars: dict[str, Scalar] = {}
    for name, value in record.items():
        if not isinstance(value, bool | int | float | str):
            raise ConfigError(
                f"config {name!r} is {type(value).__name__}", "a command carries numbers, words and booleans"
            )
        scalars[name] = value
    return scalars


def common_metrics(metrics: Sequence[Metrics]) -> list[Metrics]:
    """Metrics cut down to what every reply has in the same form, since flwr ends the process otherwise."""
    if not metrics:
        return []
    first = metrics[0]
    shared = [name for name in first if all(_alike(first[name], other.get(name)) for other in metrics)]
    return [{name: mine[name] for name in shared} for mine in metrics]


def to_metric_record(metrics: Metrics) -> MetricRecord:
    """Metrics as a record."""
    return MetricRecord(dict(metrics))


def _alike(left: MetricValue, right: MetricValue | None) -> bool:
    if isinstance(left, list) or isinstance(right, list):
        return isinstance(left, list) and isinstance(right, list) and len(left) == len(right)
    return right is not None
