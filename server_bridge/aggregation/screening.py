"""Which updates may be averaged: names, shapes, dtypes, finite values, lengths, copies, example counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
STEP_BACK = "step-back"
"""Noted of those whose cohort went back to weights of before: no update of theirs counted in that round."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not used.

    Attributes:
        reason: a stable word (``bad-norm``, ``bad-tensors``, ``bad-examples``, ``zero-update``,
            ``copied-update`` ...).
        detail: the same for people.
    """

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class NormLimits:
    """How long an update may be.

    Attributes:
        median_factor: at most this many times the median length of the *other* updates of the
            round. Honest ones differ by 10-50 (sample counts, drifted against stable); 100 stands
            between these and the hostile.
        base_factor: at most this many times (1 + length of the base weights), whatever the others.
    """

    median_factor: float = 100.0
    base_factor: float = 100.0


def check_like(model: Tensors, pattern: Tensors) -> Refusal | None:
    """Refuse a model whose tensors are not those of a pattern, or not finite; names the tensor."""
    for name in pattern:
        if name not in model:
            return Refusal("bad-tensors", f"missing tensor {name!r}")
    for name, tensor in model.items():
        if name not in pattern:
            return Refusal("bad-tensors", f"extra tensor {name!r}")
        expected = pattern[name]
        if tensor.shape != expected.shape:
            return Refusal("bad-tensors", f"tensor {name!r} has shape {tensor.shape}, not {expected.shape}")
        if tensor.dtype.kind != expected.dtype.kind:
            return Refusal("bad-tensors", f"tensor {name!r} is {tensor.dtype}, not {expected.dtype}")
        if not np.isfinite(tensor).all():
            return Refusal("bad-tensors", f"tensor {name!r} is not finite")
    return None


def check_examples(value: object, *, at_most: float = math.inf) -> Refusal | None:
    """Refuse an example count that is missing, no number, not finite, not positive or above a limit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return Refusal("bad-examples", f"num-examples is {value!r}")
    if not math.isfinite(value) or value <= 0:
        return Refusal("bad-examples", f"num-examples is {value}, it must be positive")
    if value > at_most:
        return Refusal("bad-examples", f"num-examples is {value}, at most {at_most:g} were asked for")
    return None


def tensors_norm(tensors: Tensors) -> float:
    """The Euclidean length of all tensors together, in float64; infinite where it overflows."""
    with np.errstate(over="ignore"):
        squares = [float(np.square(tensor, dtype=np.float64).sum()) for tensor in tensors.values()]
    return math.sqrt(sum(squares))


def check_moved(length: float) -> Refusal | None:
    """Refuse an update of length 0: no training leaves every weight as it was, and it would hold the mean back."""
    return Refusal("zero-update", "every weight is as it was sent") if length == 0 else None


def check_copies(digests: Mapping[str, str]) -> dict[str, Refusal]:
    """Refuse updates that repeat another gateway's to the last bit; gateways with data of their own never do.

    The first to arrive counts: a copy can only follow. Where that cannot be told, the update still counts once.

    Args:
        digests: gateway to the digest of its update, in the order of arrival.

    Returns:
        The refused, by gateway.
    """
    first: dict[str, str] = {}
    refused: dict[str, Refusal] = {}
    for gateway, digest in digests.items():
        if first.setdefault(digest, gateway) != gateway:
            refused[gateway] = Refusal("copied-update", f"the same as that of {first[digest]}, to the last bit")
    return refused


def check_norms(
    lengths: Mapping[str, float], base_lengths: Mapping[str, float], limits: NormLimits
) -> dict[str, Refusal]:
    """Refuse updates that are far too long.

    Args:
        lengths: gateway to the length of its update.
        base_lengths: gateway to the length of its base weights.
        limits: see :class:`NormLimits`.

    Returns:
        The refused, by gateway. A lone update is held to its base only; so is every update where
        the others' median is 0.
    """
    refused: dict[str, Refusal] = {}
    for gateway, length in lengths.items():
        cap = limits.base_factor * (1.0 + base_lengths[gateway])
        others = [other for name, other in lengths.items() if name != gateway]
        usual = float(np.median(others)) if others else 0.0
        if length > cap:
            refused[gateway] = Refusal("bad-norm", f"update length {length:.3g}, the cap is {cap:.3g}")
        elif usual > 0 and length > limits.median_factor * usual:
            refused[gateway] = Refusal(
                "bad-norm", f"update length {length:.3g}, {length / usual:.3g} times the others' median"
            )
    return refused
