"""FedAdam that leaves running statistics out of its steps."""

from collections.abc import Collection, Iterable
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg


class AveragedStatistics(FedAdam):
    """Adam on the server for what gradients train; running means and variances become the gateways' mean.

    A step of Adam has about the server's learning rate whatever the difference, so that a small variance would be
    below zero after it, and every prediction NaN (a known fault of such systems).

    Args:
        statistics: names of the running statistics.
        options: FedAdam's.
    """

    def __init__(self, statistics: Collection[str], **options: Any) -> None:
        super().__init__(**options)
        self._statistics = frozenset(statistics)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """FedAdam's step, the statistics replaced by their mean over the replies."""
        kept = list(replies)
        stepped, metrics = super().aggregate_train(server_round, kept)
        mean, _ = FedAvg.aggregate_train(self, server_round, kept)
        if stepped is None or mean is None:
            return stepped, metrics
        arrays = {name: mean[name] if name in self._statistics else array for name, array in stepped.items()}
        return ArrayRecord(arrays), metrics
