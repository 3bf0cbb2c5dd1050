"""``floors.json``: what a gateway trusts on its first start."""

from edge_agent.wire.codec import Count, Digest, Finite, Message, decode

FLOORS_CAP_BYTES = 16 * 1024


class ProvisionedFloors(Message):
    """Lowest versions that a freshly provisioned gateway accepts, and the time they were signed.

    ``created_s`` is the signed ``created`` of that release, seconds since 1970 UTC;
    ``map_digest`` the SHA-256 of its ``all/release`` payload.
    """

    root: Count
    targets: Count
    bundles: Count
    cohorts: Count
    snapshot: Count
    timestamp: Count
    created_s: Finite
    map_digest: Digest


def read_floors(payload: bytes) -> ProvisionedFloors:
    """A ``floors.json`` from outside.

    Raises:
        WireError: too large or malformed (named).
    """
    return decode(ProvisionedFloors, payload, cap_bytes=FLOORS_CAP_BYTES)
