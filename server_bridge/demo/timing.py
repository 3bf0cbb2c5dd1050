"""The demo's rates, waits, rounds and limits.

Rounds are the recipe's (3 local epochs, Adam 0.003, batches of 32) on the newest 384 drifted samples, 12
instead of 8: here the remount acts on raw values, and 60-70 % of each recording only calibrates. Measured in
one process over seeds 0-4. The cohorter cuts at a cosine distance of 0.65; with 384 samples the last merge
within a family comes at most at 0.60 and the families meet at 0.76 or more, with 700 samples at 0.67 and 0.81,
which parts a family. After 12 rounds the permuted family is at 0.89 or more of before, and averaging
everybody costs the stationary gateways 0.064 or more.
"""

from dataclasses import dataclass

RATE_HZ = 75.0
SOURCE_BATCH_ROWS = 8
STATE_INTERVAL_S = 1.0
ROUNDS = 12
LOCAL_EPOCHS = 3
LEARNING_RATE = 0.003
FIRST_LEARNING_RATE = 0.001
BATCH_SIZE = 32
TRIGGER_SAMPLES = 500
ROUND_MOST_SAMPLES = 384
ROUND_LEAST_SAMPLES = 64
LOOK_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest that a phase may take, seconds: far more than it needs, so that a slow machine passes."""

    start: float
    clean: float
    drift: float
    rounds: float
    activation: float
    recovery: float
    hostile: float

    @classmethod
    def for_fleet(cls, gateways: int, longest_pass_s: float) -> "Limits":
        """Limits for so many gateways on two cores."""
        crowd = max(1.0, gateways / 10)
        return cls(
            start=60.0 * crowd,
            clean=3 * longest_pass_s + 30.0 * crowd,
            drift=3 * longest_pass_s + 60.0 * crowd,
            rounds=240.0 * crowd,
            activation=60.0 * crowd,
            recovery=6 * longest_pass_s + 30.0 * crowd,
            hostile=60.0 * crowd,
        )
