"""The constants of ``loss-rise``, and how a bundle's manifest holds them."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

MONITOR_NAME = "loss-rise"
PUBLISHED_GAMMA = 0.1


@dataclass(frozen=True)
class LossRiseParams:
    """The rule's constants.

    Args:
        gamma: the rise tolerated, in units of the loss, >= 0.
        batch_size: labelled samples a batch, >= 1.
        clip: the most one sample's loss counts, > 0; None: ``rises.LOSS_CAP``.
        patience: exceedances in a row that fire, >= 1.
        hold_previous: the losses before stay what they were while exceedances run. Without it and
            with ``patience`` > 1 a step is hardly ever seen, because the reference follows it.
        lookback: the reference is the lowest of this many batches before, >= 1; published: 1.
        warmup_batches: batches seen on new weights before they can be flagged; 0: none.
        rearm_batches: after a firing nothing is flagged until an activation, or until this many
            batches in a row lie within ``gamma / safety`` of the loss before the drift. 0: the
            published "and reset": the history is forgotten and the next rise fires again.
        quantile: upper tail of the rises that gamma stands for, in (0, 1).
        safety: the factor on that quantile, >= 1.
    """

    gamma: float
    batch_size: int
    clip: float | None = None
    patience: int = 1
    hold_previous: bool = True
    lookback: int = 2
    warmup_batches: int = 8
    rearm_batches: int = 8
    quantile: float = 1e-3
    safety: float = 2.0

    def __post_init__(self) -> None:
        """Refuse constants outside their range, by name."""
        checks = {
            "gamma": np.isfinite(self.gamma) and self.gamma >= 0,
            "batch_size": self.batch_size >= 1,
            "clip": self.clip is None or (np.isfinite(self.clip) and self.clip > 0),
            "patience": self.patience >= 1,
            "lookback": self.lookback >= 1,
            "warmup_batches": self.warmup_batches >= 0,
            "rearm_batches": self.rearm_batches >= 0,
            "quantile": 0 < self.quantile < 1,
            "safety": np.isfinite(self.safety) and self.safety >= 1,
        }
        for name, right in checks.items():
            if not right:
                raise DataError(f"monitor {MONITOR_NAME}: {name} = {getattr(self, name)} is out of range")

    @classmethod
    def from_spec(cls, spec: MonitorSpec) -> Self:
        """The constants of a bundle's manifest; unknown ones are ignored.

        Raises:
            DataError: a constant is missing, of another type or out of range.
        """
        given = {name: _constant(name, spec.parameters[name]) for name in _KINDS if name in spec.parameters}
        if "gamma" not in given:
            raise DataError(f"monitor {MONITOR_NAME}: gamma is missing", "calibrate the bundle again")
        return cls(batch_size=spec.batch_size, **given)

    def to_parameters(self) -> dict[str, bool | int | float | str]:
        """The constants as the manifest holds them (the batch size stands beside them)."""
        return {name: value for name, value in asdict(self).items() if name != "batch_size" and value is not None}


def published(*, batch_size: int, gamma: float = PUBLISHED_GAMMA) -> LossRiseParams:
    """Algorithm 4 as published: no clip, no warm-up, and a reset after each firing."""
    return LossRiseParams(
        gamma=gamma,
        batch_size=batch_size,
        hold_previous=False,
        lookback=1,
        warmup_batches=0,
        rearm_batches=0,
        safety=1.0,
    )


_KINDS: dict[str, type[bool] | type[int] | type[float]] = {
    "gamma": float,
    "clip": float,
    "patience": int,
    "hold_previous": bool,
    "lookback": int,
    "warmup_batches": int,
    "rearm_batches": int,
    "quantile": float,
    "safety": float,
}


def _constant(name: str, value: bool | int | float | str) -> Any:
    kind = _KINDS[name]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise DataError(f"monitor {MONITOR_NAME}: {name} = {value!r} is no {kind.__name__}")
    return value
