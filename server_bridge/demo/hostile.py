"""The third act's attacker: the bridge's broker rights, but not a signature that holds.

Only the demo and tests use this; no part of the product forges anything.
"""

import re

from edge_agent.errors import DataError, RejectedUpdate, WireError
from edge_agent.wire.release import decode_release_map, encode_release_map
from server_bridge.releases.keys import FleetKeys, OnlineKeys
from server_bridge.releases.repository import (
    RoleVersions,
    build_online,
    cohort_references,
    metadata_files,
    read_versions,
)

_TARGET_DIGEST = re.compile(rb'"sha256":\s*"([0-9a-f]{64})"')


def next_map(current: bytes, keys: OnlineKeys, now_s: float) -> tuple[bytes, RoleVersions]:
    """The release map that would come after ``current``: the same targets, the next versions.

    Root, targets and bundles are those of ``current``: anybody may copy them.

    Args:
        keys: sign cohorts, snapshot and timestamp; properly so if they are the fleet's.

    Raises:
        RejectedUpdate: ``current`` is no release map that its own root signed.
    """
    files = decode_release_map(current)
    versions = read_versions(files, _first_root(files))
    upcoming = versions.next_online()
    cohorts = files[metadata_files(versions)["cohorts"]]
    online = build_online(keys, upcoming, cohort_references(cohorts), now_s)
    kept = {name: content for name, content in files.items() if _role(name) in ("root", "targets", "bundles")}
    return encode_release_map(kept | online), upcoming


def flipped_map(current: bytes, keys: OnlineKeys, now_s: float) -> tuple[bytes, int]:
    """The next map, properly signed, in which then one byte of a signed target digest is flipped.

    Returns: the map and the cohorts version that it claims.
    """
    payload, versions = next_map(current, keys, now_s)
    files = decode_release_map(payload)
    name = metadata_files(versions)["cohorts"]
    files[name] = _flip_digest(files[name])
    return encode_release_map(files), versions.cohorts


def stranger_map(current: bytes, now_s: float) -> tuple[bytes, int]:
    """The next map with the same layout, signed by keys made up just now.

    Returns: the map and the cohorts version that it claims.
    """
    payload, versions = next_map(current, FleetKeys.generate().online, now_s)
    return payload, versions.cohorts


def is_signed_by(payload: bytes, genuine: bytes) -> bool:
    """Whether a release map is signed by the fleet whose genuine map is given."""
    try:
        read_versions(decode_release_map(payload), _first_root(decode_release_map(genuine)))
    except (RejectedUpdate, WireError):
        return False
    return True


def _flip_digest(content: bytes) -> bytes:
    found = _TARGET_DIGEST.search(content)
    if found is None:
        raise DataError("the release map names no target, so there is nothing to flip")
    place = found.start(1)
    other = b"0" if content[place : place + 1] != b"0" else b"1"
    return content[:place] + other + content[place + 1 :]


def _first_root(files: dict[str, bytes]) -> bytes:
    return files["1.root.json"]


def _role(name: str) -> str:
    return name.split(".")[-2]
