"""When drift flags start an adaptation: pure policy over what is known at one moment.

too few flags ──> settling ──> gateways away ──> too few samples ──> start
     cool-down ^      (all three at most until the cap)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from edge_agent.wire.messages import FlagEvent, State


@dataclass(frozen=True, slots=True)
class TriggerParams:
    """The policy's parameters.

    Attributes:
        min_flags: gateways with an open flag that it takes.
        max_age_s: older flags do not count towards ``min_flags``.
        settle_s: how long no new flag may have come.
        min_samples: trainable samples that every flagged gateway should hold.
        min_samples_cap_s: the longest that settling, gateways that are away and samples are
            waited for, from the moment at which ``min_flags`` was reached.
        cooldown_s: rest after the end of an adaptation.
    """

    min_flags: int = 1
    max_age_s: float = 3600.0
    settle_s: float = 60.0
    min_samples: int = 200
    min_samples_cap_s: float = 600.0
    cooldown_s: float = 300.0


class Standing(StrEnum):
    """What a flag says of now."""

    CURRENT = "current"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Flagged:
    """An open flag about weights that run, and what its gateway holds now.

    ``online`` is false only for a gateway that is known to have left: without it a family would be
    cut in two by who was there first.
    """

    flag_id: str
    gateway: str
    received_s: float
    trainable_samples: int
    online: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """Start, or wait for ``reason`` until ``wake_s`` at the latest (``None``: until something happens)."""

    start: bool
    reason: str
    detail: str
    gateways: tuple[str, ...] = ()
    wake_s: float | None = None


def standing(flag: FlagEvent, running: State | None, released: str | None) -> Standing:
    """Whether a flag is about weights that run.

    Args:
        running: the gateway's last state; it may be older than the flag.
        released: digest of the weights that the release book says are current for it.

    Returns: ``SUPERSEDED`` only if the gateway says that it runs other weights and those are the
        released ones: a state older than the flag must not hide it.
    """
    if flag.weights == released:
        return Standing.CURRENT
    if running is None:
        return Standing.UNKNOWN
    if running.bundle == flag.bundle and running.weights == flag.weights:
        return Standing.CURRENT
    return Standing.SUPERSEDED if released is None or running.weights == released else Standing.UNKNOWN


def decide(
    params: TriggerParams, flags: Sequence[Flagged], now_s: float, *, last_ended_s: float | None = None
) -> Decision:
    """Whether to start an adaptation now.

    Args:
        flags: every open flag about running weights, any order.
        now_s: seconds on the clock of ``received_s``.
        last_ended_s: when the last adaptation ended.
    """
    recent = [flag for flag in flags if now_s - flag.received_s <= params.max_age_s]
    first = _first_by_gateway(recent)
    gateways = tuple(sorted(_first_by_gateway(flags)))
    if len(first) < params.min_flags:
        detail = f"{len(first)} of {params.min_flags} gateways have a recent open flag"
        return Decision(False, "too-few-flags", detail, gateways)
    if last_ended_s is not None and now_s < last_ended_s + params.cooldown_s:
        wake_s = last_ended_s + params.cooldown_s
        return Decision(False, "cool-down", f"{wake_s - now_s:.0f} s of rest are left", gateways, wake_s)
    reached_s = sorted(first.values())[params.min_flags - 1]
    return _after_enough_flags(params, flags, gateways, now_s, reached_s + params.min_samples_cap_s)


def _after_enough_flags(
    params: TriggerParams, flags: Sequence[Flagged], gateways: tuple[str, ...], now_s: float, cap_s: float
) -> Decision:
    settled_s = max(flag.received_s for flag in flags) + params.settle_s
    short = sorted({flag.gateway for flag in flags if flag.trainable_samples < params.min_samples})
    away = sorted({flag.gateway for flag in flags if not flag.online})
    if now_s >= cap_s and (short or away or now_s < settled_s):
        detail = (
            f"the cap of {params.min_samples_cap_s:.0f} s is reached; short of samples: {', '.join(short) or 'none'}; "
            f"away: {', '.join(away) or 'none'}"
        )
        return Decision(True, "cap-reached", detail, gateways)
    if now_s < settled_s:
        detail = f"{len(gateways)} gateways flagged; waiting for {params.settle_s:.0f} s without a new flag"
        return Decision(False, "settling", detail, gateways, min(settled_s, cap_s))
    if away:
        detail = f"{len(away)} of {len(gateways)} flagged gateways are away: {', '.join(away)}"
        return Decision(False, "gateways-away", detail, gateways, cap_s)
    if short:
        detail = (
            f"{len(short)} of {len(gateways)} gateways hold fewer than {params.min_samples} samples: {', '.join(short)}"
        )
        return Decision(False, "too-few-samples", detail, gateways, cap_s)
    detail = f"{len(gateways)} gateways flagged, none new for {params.settle_s:.0f} s, samples enough"
    return Decision(True, "flags-settled", detail, gateways)


def _first_by_gateway(flags: Sequence[Flagged]) -> dict[str, float]:
    first: dict[str, float] = {}
    for flag in flags:
        first[flag.gateway] = min(flag.received_s, first.get(flag.gateway, flag.received_s))
    return first
