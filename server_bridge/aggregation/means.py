"""Weighted means of named tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]


def weighted_mean(models: Sequence[Tensors], weights: Sequence[float]) -> dict[str, NDArray[Any]]:
    """The mean of models, summed in float64.

    Args:
        models: at least one, with the same names and shapes, finite.
        weights: one each, finite, none negative, not all zero (usually example counts).

    Returns:
        Named tensors in the names' order and dtypes of the first model; exact where all agree.

    Raises:
        ValueError: no model; names, shapes or lengths differ; weights unusable.

    Source: McMahan et al. 2017, Algorithm 1.
    Cost: O(n d) time, O(d) memory beside the input.
    """
    if not models or len(models) != len(weights):
        raise ValueError(f"{len(models)} models and {len(weights)} weights")
    shares = _shares(weights)
    check_alike(models)
    return {name: _mean_tensor([model[name] for model in models], shares) for name in models[0]}


def check_alike(models: Sequence[Tensors]) -> None:
    """Models have the same names and shapes.

    Raises:
        ValueError: they have not, or there is none.
    """
    if not models:
        raise ValueError("no model")
    first = models[0]
    for model in models[1:]:
        if model.keys() != first.keys():
            raise ValueError(f"models differ in tensor {sorted(model.keys() ^ first.keys())[0]!r}")
        for name, tensor in model.items():
            if tensor.shape != first[name].shape:
                raise ValueError(f"tensor {name!r} has shapes {first[name].shape} and {tensor.shape}")


def like(pattern: NDArray[Any], values: NDArray[np.float64]) -> NDArray[Any]:
    """Float64 values in a pattern's dtype; rounded to the nearest where that is whole numbers."""
    return (np.rint(values) if np.issubdtype(pattern.dtype, np.integer) else values).astype(pattern.dtype)


def _shares(weights: Sequence[float]) -> list[float]:
    total = float(sum(weights))
    if not np.isfinite(total) or min(weights) < 0 or total <= 0:
        raise ValueError(f"weights must be finite, not negative and not all zero: {list(weights)[:10]}")
    return [float(weight) / total for weight in weights]


def _mean_tensor(tensors: Sequence[NDArray[Any]], shares: Sequence[float]) -> NDArray[Any]:
    # Around the first model: identical tensors give themselves, whatever the rounding of the shares.
    origin = np.asarray(tensors[0], np.float64)
    offset = np.zeros_like(origin)
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        offset += share * (np.asarray(tensor, np.float64) - origin)
    return like(tensors[0], origin + offset)
