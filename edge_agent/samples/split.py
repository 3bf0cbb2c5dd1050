"""Which part of the replay store a sample belongs to."""

import math
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from edge_agent.samples.record import Part

_DIGEST_BYTES = 8


def part_of(sample_id: str, group: str | None, *, holdout: bool, proof_share: float) -> Part:
    """Train, proof or holdout; the same for ever for the same names and share.

    Args:
        sample_id: hashed where there is no group.
        group: hashed where given, so that a recording is never in both parts.
        holdout: wins over both.
        proof_share: share of the hash range that is proof, in [0, 1).
    """
    if holdout:
        return Part.HOLDOUT
    key = sample_id if group is None else group
    return Part.PROOF if proof_rows([key], proof_share)[0] else Part.TRAIN


def proof_rows(keys: Sequence[str], proof_share: float) -> NDArray[np.bool_]:
    """(n,) whether a sample is of the proof part, by the id or group that it is hashed by."""
    return below_share(hashes_of(keys), proof_share) if proof_share > 0 else np.zeros(len(keys), np.bool_)


def below_share(hashes: NDArray[np.uint64], proof_share: float) -> NDArray[np.bool_]:
    """(n,) the same by their :func:`hashes_of`."""
    return hashes < np.uint64(math.ceil(proof_share * 2 ** (8 * _DIGEST_BYTES)))


def hashes_of(keys: Sequence[str]) -> NDArray[np.uint64]:
    """(n,) a number of 64 bits for each id or group."""
    digests = b"".join([blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest() for key in keys])
    return np.frombuffer(digests, ">u8").astype(np.uint64)
