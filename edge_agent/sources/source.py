"""What every source does."""

from dataclasses import dataclass, field
from typing import Protocol

from edge_agent.samples.record import Label, SampleBatch


@dataclass(slots=True)  # not frozen: one is made for every read, and a frozen one takes three times as long
class SourceBatch:
    """What one read gave; samples and labels are separate, and either may be missing.

    Attributes:
        run_rows: samples that are predicted in one run of the model; None: all.
    """

    samples: SampleBatch | None = None
    labels: list[Label] = field(default_factory=list)
    run_rows: int | None = None


class Source(Protocol):
    """Samples and late labels, read by one thread.

    Attributes:
        bad_messages: what came and could not be read, so far.
    """

    bad_messages: int

    def read(self, timeout_s: float) -> SourceBatch | None:
        """What has come, after at most ``timeout_s``; empty if nothing has; None: nothing will come any more.

        Raises:
            TransientError: the source is broken and has to be made anew.
        """

    def close(self) -> None:
        """Give back what the source holds; from any thread, once."""
