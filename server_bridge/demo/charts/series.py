"""Accuracy over time from holdout counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from server_bridge.demo.facts import ArmFacts, GatewayFacts, Point, Tally

STEP_S = 1.0
REACH_S = 3.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Accuracy around one moment, under one model."""

    at_s: float
    accuracy: float


def gateway_series(gateway: GatewayFacts, *, shift_s: float = 0.0) -> list[list[Sample]]:
    """Smoothed accuracy of one gateway, a run per model and sensor position: none reaches into the next.

    Args:
        shift_s: added to every moment.
    """
    runs: dict[tuple[bool, str, int], list[Point]] = {}
    for point in sorted(gateway.points, key=lambda each: each.start_s):
        remounted = (point.start_s + point.end_s) / 2 >= gateway.remount_s
        runs.setdefault((remounted, point.cohort, point.version), []).append(point)
    smoothed = [_smoothed(points, shift_s) for points in runs.values()]
    return [run for run in smoothed if run]


def mean_series(gateways: Sequence[GatewayFacts], last_s: float, *, shift_s: float = 0.0) -> list[tuple[float, float]]:
    """Mean over gateways of their accuracies around each moment; only where all have been counted.

    Args:
        shift_s: added to every moment.
    """
    all_runs = [[sample for run in gateway_series(g, shift_s=shift_s) for sample in run] for g in gateways]
    line: list[tuple[float, float]] = []
    moment = STEP_S
    while moment < last_s:
        near = [_nearest(samples, moment) for samples in all_runs]
        known = [value for value in near if value is not None]
        if near and len(known) == len(near):
            line.append((moment, sum(known) / len(known)))
        moment += STEP_S
    return line


def last_moment(arm: ArmFacts) -> float:
    """The end of the last counted span of the arm."""
    return max((point.end_s for gateway in arm.gateways for point in gateway.points), default=1.0)


def _smoothed(points: Sequence[Point], shift_s: float) -> list[Sample]:
    samples = []
    for point in points:
        middle = (point.start_s + point.end_s) / 2
        near = [p.tally for p in points if abs((p.start_s + p.end_s) / 2 - middle) <= REACH_S]
        pooled = sum(near, Tally())
        if pooled.accuracy is not None:
            samples.append(Sample(middle + shift_s, pooled.accuracy))
    return samples


def _nearest(samples: Sequence[Sample], moment: float) -> float | None:
    best = min(samples, key=lambda sample: abs(sample.at_s - moment), default=None)
    if best is None or abs(best.at_s - moment) > 2 * REACH_S:
        return None
    return best.accuracy
