"""What every sink does."""

import json
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Sink(Protocol):
    """Takes predictions on the hot path: ``write`` never waits for disk or network; what it cannot take is counted."""

    dropped: int

    @property
    def alive(self) -> bool:
        """Whether predictions get through, or will when disk or broker are back."""

    def start(self) -> None:
        """Begin to pass predictions on."""

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        """Take the predictions of a batch.

        Args:
            ids, times: n samples.
            outputs: (n, ...) the primary output.
            weights: digest of the weights that served.
            task: whose outputs they are, of a bundle with tasks.
        """

    def stop(self, timeout_s: float) -> None:
        """Pass on what was taken, as far as the time allows, and end."""


class NoSink:
    """Predictions are not passed on."""

    dropped = 0
    alive = True

    def start(self) -> None:
        """Nothing begins."""

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        """Nothing is taken."""

    def stop(self, timeout_s: float) -> None:
        """Nothing ends."""


def prediction_lines(
    ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
) -> list[bytes]:
    """A JSON object a sample: id, time, output, weights, perhaps the task. What is not finite is null."""
    made_by = {"weights": weights} if task is None else {"weights": weights, "task": task}
    return [
        json.dumps({"id": name, "time": time_s, "output": _finite(output), **made_by}, separators=(",", ":")).encode()
        for name, time_s, output in zip(ids, times, outputs.tolist(), strict=True)
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return value if np.isfinite(value) else None
