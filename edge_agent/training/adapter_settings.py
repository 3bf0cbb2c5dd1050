"""How an online adapter follows a stream, and what it says of each batch."""

import math
from dataclasses import dataclass

from edge_agent.drift.fed_ade import Shift
from edge_agent.drift.label_shift import STRENGTH
from edge_agent.errors import DataError


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """How to follow.

    Args:
        training_graph: one of the bundle's that takes no labels.
        minimum, maximum: of the learning rate; equal for a constant one.
        steps: on each batch, >= 1.
        least_samples: a smaller batch is looked at and not trained on: a step on one sample is mostly noise.
        label_shift: whether the shares of the classes are estimated from each batch; else they are the bundle's.
        strength: how many samples the bundle's shares are worth in that estimate.
        farthest: the overlay's distance from the release, over the release's length, is cut to this. Default: ours,
            several times what following the benchmark's shifts takes.
        published: shifts are judged raw, as published, even where the bundle has scales.
    """

    training_graph: str
    minimum: float
    maximum: float
    steps: int = 1
    least_samples: int = 8
    label_shift: bool = False
    strength: float = STRENGTH
    farthest: float = 0.5
    published: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range, by name."""
        checks = {
            "minimum": 0 <= self.minimum <= self.maximum,
            "maximum": 0 < self.maximum < math.inf,
            "steps": self.steps >= 1,
            "least_samples": self.least_samples >= 1,
            "farthest": 0 < self.farthest < math.inf,
        }
        for name, right in checks.items():
            if not right:
                raise DataError(f"online adapter: {name} = {getattr(self, name)} is out of range")


@dataclass(frozen=True, slots=True)
class Adapted:
    """What came of a batch.

    Args:
        rate: of its steps; 0 where none was made.
        shift: as judged.
        distance: of the overlay from the release, over the release's length.
        went_back: why the overlay is the release again, if it is: ``not-finite``.
    """

    rate: float
    shift: Shift
    distance: float
    went_back: str | None = None
