"""What a release map claims, read before anything is verified: only ever used to refuse."""

from typing import Annotated

from pydantic import Field

from edge_agent.errors import WireError
from edge_agent.ota.floors import Versioned
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import Count, Name, WireModel, decode
from edge_agent.wire.release import RELEASE_MAP_CAP_BYTES

_SNAPSHOT_FILE = "snapshot.json"
_SNAPSHOT_ROLES = ("targets", "bundles", "cohorts")


class _Meta(WireModel):
    version: Count


class _Signed(WireModel):
    version: Count
    meta: Annotated[dict[Name, _Meta], Field(max_length=64)]


class _Envelope(WireModel):
    signed: _Signed


def read_claims(files: dict[str, bytes]) -> dict[str, Versioned]:
    """Version and file digest of each role, as the map's own files state them.

    Args:
        files: a decoded release map.

    Raises:
        WireError: a role is absent or malformed.
    """
    timestamp = _signed(files, "timestamp.json")
    snapshot_name = f"{_version(timestamp, _SNAPSHOT_FILE)}.{_SNAPSHOT_FILE}"
    snapshot = _signed(files, snapshot_name)
    root_version = max((_root_version(name) for name in files), default=0)
    claims = {
        "root": _versioned(files, f"{root_version}.root.json", root_version),
        "timestamp": _versioned(files, "timestamp.json", timestamp.version),
        "snapshot": _versioned(files, snapshot_name, snapshot.version),
    }
    for role in _SNAPSHOT_ROLES:
        version = _version(snapshot, f"{role}.json")
        claims[role] = _versioned(files, f"{version}.{role}.json", version)
    return claims


def _signed(files: dict[str, bytes], name: str) -> _Signed:
    return decode(_Envelope, _file(files, name), cap_bytes=RELEASE_MAP_CAP_BYTES).signed


def _file(files: dict[str, bytes], name: str) -> bytes:
    if name not in files:
        raise WireError("release map", f"{name} is absent")
    return files[name]


def _version(signed: _Signed, name: str) -> int:
    if name not in signed.meta:
        raise WireError("release map", f"no version of {name}")
    return signed.meta[name].version


def _versioned(files: dict[str, bytes], name: str, version: int) -> Versioned:
    return Versioned(version, sha256_hex(_file(files, name)))


def _root_version(name: str) -> int:
    number, _, rest = name.partition(".")
    return int(number) if rest == "root.json" and number.isdecimal() else 0
