"""What to do about the map that the broker holds."""

from dataclasses import dataclass
from enum import StrEnum

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.errors import WireError
from edge_agent.wire.release import decode_release_map
from server_bridge.releases.record import ReleaseBook, ReleaseRecord
from server_bridge.releases.repository import RoleVersions, read_versions


class Verdict(StrEnum):
    """How a map on ``all/release`` relates to ours."""

    OWN = "own"
    OLDER_OWN = "older-own"
    FOREIGN = "foreign-map"
    """Not signed by this fleet's keys, or not newer than ours: ours is put back."""
    AHEAD = "ahead"
    """Signed by this fleet's keys, unknown to the book, at our version or above: we go on above it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict; ``versions`` only of a map that is ahead."""

    verdict: Verdict
    detail: str = ""
    versions: RoleVersions | None = None


def judge(payload: bytes, digest: str, latest: ReleaseRecord, book: ReleaseBook, root: bytes) -> Judged:
    """Judge a map seen on the broker.

    Args:
        digest: SHA-256 of ``payload``.
        root: the trusted root's bytes.
    """
    if digest == latest.map_digest:
        return Judged(Verdict.OWN)
    if book.knows(digest):
        return Judged(Verdict.OLDER_OWN)
    try:
        versions = read_versions(decode_release_map(payload), root)
    except (WireError, RejectedUpdate) as error:
        return Judged(Verdict.FOREIGN, str(error))
    if versions.timestamp < latest.versions.timestamp:
        return Judged(Verdict.FOREIGN, f"properly signed, but older: timestamp version {versions.timestamp}")
    return Judged(Verdict.AHEAD, f"properly signed, timestamp version {versions.timestamp}", versions)
