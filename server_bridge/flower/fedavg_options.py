"""What Flower's FedAvg takes."""

from collections.abc import Callable
from typing import TypedDict

from flwr.app import MetricRecord, RecordDict

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]


class FedAvgOptions(TypedDict, total=False):
    """What FedAvg takes, and CLMA passes on."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: MetricsFunction | None
    evaluate_metrics_aggr_fn: MetricsFunction | None
