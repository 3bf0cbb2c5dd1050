"""Integers that order as the floating-point numbers do whose bits they are."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Keys = NDArray[np.signedinteger[Any]]
BLOCK = 32_768  # values: what is worked on stays in the second-level cache


def sample(values: ArrayLike, what: str) -> NDArray[Any]:
    """A sample (n,) as it is, not copied if it is a contiguous or mapped array.

    Raises:
        ValueError: it is empty, or no real numbers of at most double precision.
    """
    flat = np.asanyarray(values).reshape(-1)
    if flat.size == 0:
        raise ValueError(f"the {what} sample is empty")
    precision_for(flat.dtype)
    return flat


def precision_for(*dtypes: DTypeLike) -> np.dtype[np.floating[Any]]:
    """float32 if that holds every value of these types, else float64.

    Raises:
        ValueError: a type is not real, or wider than float64.
    """
    common = np.result_type(np.float32, *dtypes)
    if common not in (np.float32, np.float64):
        raise ValueError(f"parameters of type {common} are not compared; give float32 or float64")
    return common


def key_blocks(values: NDArray[Any], precision: np.dtype[np.floating[Any]], what: str) -> Iterator[Keys]:
    """The keys of a sample, block by block; zeros of both signs have one key.

    Args:
        values: (n,) real.
        precision: from :func:`precision_for`, at least that of the values.
        what: names the sample in an error.

    Raises:
        ValueError: a value is not finite.
    """
    for start in range(0, values.size, BLOCK):
        block = np.ascontiguousarray(values[start : start + BLOCK], precision)
        finite = np.isfinite(block)
        if not finite.all():
            first = int(finite.argmin())
            raise ValueError(f"the {what} sample is not finite: value {start + first} is {block[first]}")
        yield _keys(block)


def sorted_keys(values: NDArray[Any], precision: np.dtype[np.floating[Any]], what: str) -> Keys:
    """The keys of a sample (n,) in ascending order; arguments as :func:`key_blocks`."""
    keys = np.empty(values.size, _key_type(precision))
    start = 0
    for block in key_blocks(values, precision, what):
        keys[start : start + block.size] = block
        start += block.size
    keys.sort()
    return keys


def _key_type(precision: np.dtype[np.floating[Any]]) -> np.dtype[np.signedinteger[Any]]:
    return np.dtype(f"=i{precision.itemsize}")


def _keys(block: NDArray[np.floating[Any]]) -> Keys:
    """Sign and magnitude to two's complement: -(bits without the sign) for negative numbers."""
    bits: Keys = block.view(_key_type(block.dtype))
    sign = bits >> (8 * block.itemsize - 1)
    keys = bits ^ sign
    keys -= sign
    sign &= np.iinfo(bits.dtype).min
    keys += sign
    return keys
