"""What is said of one window of samples without labels."""

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["accuracy", "loss"]
"""Of a classification: the share of samples that are right; of a regression: the mean clipped loss."""
Refusal = Literal[
    "",
    "too-few",
    "not-finite",
    "support",
    "weights",
    "unlike",
    "new-class",
    "class-mix",
    "held",
    "other-weights",
    "passing",
]
"""Why there is no figure.

``too-few`` rows that can be judged; ``not-finite`` inputs or outputs in too many rows; ``support``: inputs or
embeddings outside of the reference's; ``weights``: the window looks like so little of the reference that too few of its
rows speak; ``unlike``: however it is weighed, the reference does not spread as the window does; ``new-class``:
something has changed, and it may be a class of which the reference has no rows; ``class-mix``: the shares of the
classes have changed too far, or what follows if only they have contradicts what follows if only the inputs have;
``held``: one of the last five was the case before, and the stream has not gone back to what the reference is like;
``passing``: something changes within the window, which is neither the world before nor the one after;
``other-weights``: the reference was served by the bundle's own weights, the window by others, whose mistakes nobody has
measured.
"""


@dataclass(frozen=True, slots=True)
class AccuracyEstimate:
    """Estimated accuracy or loss of a window, or the refusal to say.

    Attributes:
        quantity: what is estimated.
        value: the estimate; NaN where refused.
        low, high: 90 % interval of the window's own true value; NaN where refused.
        expected: the reference's.
        refusal: why there is no figure; "" where there is one.
        reason: the refusal in words, with the figures behind it; "" where there is an estimate.
        rows: judged rows of the window.
        windows: number of the window since the start of the monitor's state, from 1.
    """

    quantity: Quantity
    value: float
    low: float
    high: float
    expected: float
    refusal: Refusal
    reason: str
    rows: int
    windows: int

    @property
    def refused(self) -> bool:
        """Whether there is no figure."""
        return self.refusal != ""
