"""What the scalars of a training graph may be."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from edge_agent.wire.manifest import TrainingGraphSpec

LEARNING_RATE, STEP = "learning_rate", "step"
OF_THE_STEP = (LEARNING_RATE, STEP)
"""Those that every step sets itself."""
LARGEST_FLOAT32, LEAST_FLOAT32 = 3.4028234663852886e38, 1.401298464324817e-45
"""The graph's scalars are float32: beyond the first a number is infinite there, below the second it is zero."""
_BELOW_ONE = math.nextafter(1.0, 0.0)
_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "momentum": (0.0, _BELOW_ONE),
        "weight_decay": (0.0, math.inf),
        "clip_norm": (0.0, math.inf),
        "update_norm_cap": (0.0, math.inf),
        "proximal": (0.0, math.inf),
        "diversity": (0.0, math.inf),
        "confidence": (0.0, 1.0),
    }
)
"""Of scalars that have one; the others need only be finite."""


def settable(spec: TrainingGraphSpec) -> tuple[str, ...]:
    """The scalars of a graph that an order may set, beside the learning rate."""
    return tuple(name for name in spec.scalars if name not in OF_THE_STEP)


def unfit_scalar(spec: TrainingGraphSpec, given: Mapping[str, float]) -> str:
    """What is wrong with scalars for a graph: one is unknown to it, or out of range; empty: nothing."""
    known = settable(spec)
    for name, value in given.items():
        if name not in known:
            have = ", ".join(repr(one) for one in known) or "none"
            return f"training graph {spec.name!r} has no scalar {name!r} to set (it has {have})"
        least, most = _RANGES.get(name, (-math.inf, math.inf))
        if not (abs(value) <= LARGEST_FLOAT32 and least <= value <= most):
            return f"scalar {name!r} is {value}, outside {_range(least, most)}"
    return ""


def unfit_rate(learning_rate: float) -> str:
    """What is wrong with a learning rate; empty: nothing."""
    if LEAST_FLOAT32 <= learning_rate <= LARGEST_FLOAT32:
        return ""
    return f"learning rate {learning_rate} is not positive and finite as float32"


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return "0 and above" if least == 0 else "what is finite"
    return f"[{least:g}, {'1)' if most == _BELOW_ONE else f'{most:g}]'}"
