"""Who is in the demo's fleet: which subject a gateway replays, and how its sensor is remounted."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError

LEAST_GATEWAYS = 3
FULL_GATEWAYS = 10


class Family(StrEnum):
    """Gateways whose sensors are remounted alike."""

    PERMUTED = "permuted"
    FLIPPED = "flipped"
    STATIONARY = "stationary"


PERMUTED_AXES = (1, 2, 0, 4, 5, 3)
FLIPPED_SIGNS = (-1, -1, 1, -1, -1, 1)
SUBJECTS = {Family.PERMUTED: (1, 2, 9, 10), Family.FLIPPED: (5, 6, 7, 8), Family.STATIONARY: (3, 4)}
TRUTHS = {
    Family.PERMUTED: "sensor remounted, axes turned",
    Family.FLIPPED: "sensor remounted, upside down",
    Family.STATIONARY: "untouched",
}


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """One gateway of the demo."""

    id: str
    family: Family
    subject: int

    @property
    def drifts(self) -> bool:
        """Whether its sensor is remounted part-way."""
        return self.family is not Family.STATIONARY


def remount(family: Family, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the remounted sensor gives for the same motion.

    Args:
        windows: (n, 6, length) float32, raw sensor values.
    """
    if family is Family.PERMUTED:
        return np.ascontiguousarray(windows[:, PERMUTED_AXES])
    if family is Family.FLIPPED:
        return windows * np.array(FLIPPED_SIGNS, np.float32)[None, :, None]
    return windows


def family_sizes(gateways: int) -> dict[Family, int]:
    """How many gateways each family has: 4:4:2, none empty.

    Raises:
        ConfigError: fewer than :data:`LEAST_GATEWAYS`.
    """
    if gateways < LEAST_GATEWAYS:
        raise ConfigError(f"--gateways {gateways}: a family would be empty", f"use {LEAST_GATEWAYS} or more")
    stationary = max(1, round(0.2 * gateways))
    permuted = -(-(gateways - stationary) // 2)
    return {
        Family.PERMUTED: permuted,
        Family.FLIPPED: gateways - stationary - permuted,
        Family.STATIONARY: stationary,
    }


def plan_fleet(gateways: int) -> tuple[GatewayPlan, ...]:
    """The fleet in the order of its ids; subjects are reused in turn."""
    plans: list[GatewayPlan] = []
    for family, size in family_sizes(gateways).items():
        subjects = SUBJECTS[family]
        for place in range(size):
            plans.append(GatewayPlan(f"gw-{len(plans) + 1:02d}", family, subjects[place % len(subjects)]))
    return tuple(plans)
