"""What the scenario tells while it runs, and to whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GatewayLine:
    """One gateway as the terminal shows it."""

    id: str
    truth: str
    online: bool
    accuracy: float | None
    flagged: bool
    cohort: str
    version: int


class Progress(Protocol):
    """Takes what happens; never fails."""

    def note(self, words: str) -> None:
        """Something worth a line."""
        ...

    def phase(self, arm: str, words: str) -> None:
        """A phase of an arm begins."""
        ...

    def gateways(self, lines: Sequence[GatewayLine], detail: str) -> None:
        """How the fleet stands now; ``detail`` is what the phase waits for."""
        ...
