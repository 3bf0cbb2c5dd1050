"""The demo's rates, waits, rounds and limits.

Rounds: the recipe (8 rounds of 3 epochs, Adam 0.003) was measured on standardised data and a training
share of 70 %; here the remount acts on raw values and 60-70 % calibrates. The cohorter cuts at a cosine
distance of 0.65. Over seeds 0-4 the last merge within a family came at 0.63-0.67 with 700 samples a
gateway at 0.003, at 0.52-0.61 with 512 at 0.0025, and the families met at 0.78 or more. Fewer
and smaller steps a round need more rounds: 12 bring the permuted family to 0.90-0.99 of before.
"""

from dataclasses import dataclass

RATE_HZ = 75.0
SOURCE_BATCH_ROWS = 8
STATE_INTERVAL_S = 1.0
ROUNDS = 12
LOCAL_EPOCHS = 3
LEARNING_RATE = 0.0025
FIRST_LEARNING_RATE = 0.001
BATCH_SIZE = 32
TRIGGER_SAMPLES = 500
ROUND_MOST_SAMPLES = 512
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
