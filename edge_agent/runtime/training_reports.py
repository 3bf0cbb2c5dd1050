"""What the bridge hears of a local round besides its reply: progress now and then, and how it ended."""

import time
from collections.abc import Callable

from edge_agent.link.outbox import Outbox, Priority
from edge_agent.training.job import TrainingJob
from edge_agent.training.progress import Progress
from edge_agent.training.supervisor import TrainingOutcome
from edge_agent.wire.messages import TrainingEvent

PROGRESS_S = 5.0
PROGRESS_A_ROUND = 20
"""So many at most: the bridge's log of a gateway's events is bounded, and holds its flags too."""
DETAIL_CHARS = 2000


class TrainingReports:
    """Puts events of lowest priority into the outbox: the first to be shed.

    Args:
        interval_s: between two of progress, at least.
    """

    def __init__(
        self, outbox: Outbox, *, interval_s: float = PROGRESS_S, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._outbox = outbox
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._every_s = interval_s
        self._due_s = monotonic_s() + interval_s
        self._told: Progress | None = None

    def began(self, duration_s: float) -> None:
        """A round begins: its first progress is told after an interval, so a short round has none."""
        self._every_s = max(self._interval_s, duration_s / PROGRESS_A_ROUND)
        self._due_s = self._monotonic_s() + self._every_s
        self._told = None

    def progress(self, job: TrainingJob, progress: Progress | None) -> None:
        """Tell it if there is something new and the last was long enough ago.

        Raises:
            StorageError: the outbox cannot take it.
        """
        if progress is None or progress == self._told or self._monotonic_s() < self._due_s:
            return
        self._due_s = self._monotonic_s() + self._every_s
        self._told = progress
        self._outbox.put(
            TrainingEvent(
                command_id=job.command_id,
                step="progress",
                epochs=progress.epochs,
                of_epochs=progress.of_epochs,
                loss=progress.loss,
            ),
            Priority.TELEMETRY,
        )

    def ended(self, job: TrainingJob, outcome: TrainingOutcome) -> None:
        """Tell how it ended.

        Raises:
            StorageError: the outbox cannot take it.
        """
        self._outbox.put(
            TrainingEvent(
                command_id=job.command_id,
                step="done" if outcome.ok else "failed",
                detail="" if outcome.ok else f"{outcome.reason}: {outcome.detail}"[:DETAIL_CHARS],
                samples=int(outcome.metrics.get("num-examples", 0)),
                duration_s=float(outcome.metrics.get("train-duration-s", 0.0)),
                epochs=float(outcome.metrics.get("epochs-done", 0.0)),
                of_epochs=job.epochs,
            ),
            Priority.TELEMETRY,
        )
