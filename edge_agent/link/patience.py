"""How long a fetch bears silence: absence and delay look the same to it."""

import random

SILENCE_FACTOR = 4.0
RETRIES = 2


class Patience:
    """How long silence is borne: the larger of ``least_s`` and four times the usual time between chunks."""

    def __init__(self, least_s: float, now_s: float, rng: random.Random) -> None:
        self._least_s = least_s
        self._rng = rng
        self._since_s = now_s
        self._heard_s = now_s
        self._usual_s = 0.0
        self._stretch = 1.0
        self._tries = 0

    def arrived(self, now_s: float) -> None:
        """A chunk came."""
        gap_s = now_s - self._since_s
        self._usual_s = gap_s if self._usual_s == 0.0 else 0.8 * self._usual_s + 0.2 * gap_s
        self._since_s = now_s
        self._tries = 0
        self._stretch = 1.0

    def interrupted(self, now_s: float) -> None:
        """The broker is away: its silence says nothing of the chunks."""
        self._since_s = now_s

    def progressed(self, heard_s: float) -> None:
        """Bytes came at this time: on a slow link a chunk takes longer than any silence."""
        self._heard_s = max(self._heard_s, heard_s)

    def is_over(self, now_s: float) -> bool:
        """Whether it has been silent for too long."""
        silent_s = now_s - max(self._since_s, self._heard_s)
        return silent_s > self._stretch * max(self._least_s, SILENCE_FACTOR * self._usual_s)

    def try_again(self, now_s: float) -> bool:
        """Count one more try, with jitter on its time; ``False`` when there have been enough."""
        self._tries += 1
        self._since_s = now_s
        self._stretch = self._rng.uniform(1.0, 1.5)
        return self._tries <= RETRIES
