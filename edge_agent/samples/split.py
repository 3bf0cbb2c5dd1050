"""Which part of the replay store a sample belongs to."""

from hashlib import blake2b

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
    point = int.from_bytes(blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest(), "big")
    return Part.PROOF if point < proof_share * 2 ** (8 * _DIGEST_BYTES) else Part.TRAIN
