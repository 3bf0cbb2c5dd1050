"""The learning rate of each step of a local round."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray


class Schedule(Protocol):
    """Says before each step how far to go.

    Attributes:
        in_time_order: whether batches must come in the order of the samples; else a seed orders them.
    """

    in_time_order: bool

    def begin_epoch(self) -> None:
        """Told before the first batch of each pass over the data."""

    def rate(self, features: Mapping[str, NDArray[Any]]) -> float:
        """The learning rate for the step on this batch: positive and finite."""

    def metrics(self) -> dict[str, int | float]:
        """What is worth telling of the rates given out."""


class ConstantRate:
    """The same rate for every step."""

    in_time_order = False

    def __init__(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate

    def begin_epoch(self) -> None:
        """Nothing to do."""

    def rate(self, features: Mapping[str, NDArray[Any]]) -> float:
        """The rate, whatever the batch."""
        return self._learning_rate

    def metrics(self) -> dict[str, int | float]:
        """Nothing: the order says it."""
        return {}
