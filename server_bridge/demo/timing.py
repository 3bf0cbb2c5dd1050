"""The demo's rates, waits and limits."""

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
ROUND_MOST_SAMPLES = 1000
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
