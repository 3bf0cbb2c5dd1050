"""Release targets and the release map: what TUF metadata speaks about.

TUF itself is checked by ``edge_agent.ota``; here are only the forms of the map and of the
target files, and their names.
"""

import base64
import binascii
from typing import Annotated, Literal

import zstandard
from pydantic import Field, StringConstraints

from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import (
    Count,
    Digest,
    FileName,
    Identifier,
    Items,
    Message,
    Name,
    Table,
    WireModel,
    decode,
    encode,
)
from edge_agent.wire.errors import WireError

RELEASE_MAP_CAP_BYTES = 256 * 1024
TARGET_CAP_BYTES = 4 * 1024 * 1024
ROOT_COHORT = "root"

FLEET_TARGET = "fleet.json"
MEMBERSHIP_TARGET = "membership.json"

CohortId = Annotated[str, StringConstraints(pattern=r"^(root|c[1-9][0-9]{0,8})$")]
MetadataName = Annotated[str, StringConstraints(pattern=r"^([0-9]{1,9}\.)?[a-z]{1,32}\.json$")]


def bundle_target(bundle: str) -> str:
    """The target that lists a bundle's files."""
    return f"bundles/{bundle}.json"


def cohort_target(bundle: str, cohort: str) -> str:
    """The target that states a cohort's weights."""
    return f"cohorts/{bundle}/{cohort}.json"


class CommandKey(WireModel):
    """An Ed25519 public key that may sign commands; 32 bytes in hexadecimal."""

    public: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FleetTarget(Message):
    """``fleet.json``."""

    fleet: Identifier
    default_bundle: Digest
    command_keys: Annotated[Table[Name, CommandKey], Field(max_length=16)]


class BundleTarget(Message):
    """``bundles/<bundle>.json``: every file of the bundle, ``manifest.json`` included."""

    files: Annotated[Table[FileName, BlobReference], Field(max_length=64)]


class Membership(WireModel):
    """Where a gateway belongs."""

    bundle: Digest
    cohort: CohortId


class MembershipTarget(Message):
    """``membership.json`` (zstd): a gateway that is not listed has the default bundle and the root cohort."""

    gateways: Annotated[Table[Identifier, Membership], Field(max_length=50_000)]


class WeightsStatement(WireModel):
    """Weights at a version; ``revert`` skips the comparison with what runs.

    ``adaptation``: the one whose rounds made them; a gateway's personal values of these rounds go with them.
    """

    version: Count
    weights: BlobReference
    base_version: Count
    kind: Literal["normal", "revert"] = "normal"
    adaptation: Name | None = None


class CandidateStatement(WeightsStatement):
    """Weights on trial on the eligible gateways."""

    eligible: Annotated[Items[Identifier], Field(max_length=50_000)]
    step: Count


class CohortTarget(Message):
    """``cohorts/<bundle>/<cohort>.json``."""

    bundle: Digest
    cohort: CohortId
    current: WeightsStatement
    candidate: CandidateStatement | None = None


class ReleaseMap(Message):
    """``all/release``: TUF metadata files by name, base64."""

    files: Annotated[Table[MetadataName, str], Field(min_length=1, max_length=64)]


def encode_release_map(files: dict[str, bytes]) -> bytes:
    """The map of TUF metadata files.

    Raises:
        WireError: it would exceed the cap (256 KiB).
    """
    encoded = {name: base64.b64encode(content).decode() for name, content in sorted(files.items())}
    payload = encode(ReleaseMap(files=encoded))
    if len(payload) > RELEASE_MAP_CAP_BYTES:
        raise WireError("release map", f"{len(payload)} bytes, the cap is {RELEASE_MAP_CAP_BYTES}")
    return payload


def decode_release_map(payload: bytes) -> dict[str, bytes]:
    """Metadata files by name.

    Raises:
        WireError: too large or malformed.
    """
    release = decode(ReleaseMap, payload, cap_bytes=RELEASE_MAP_CAP_BYTES)
    try:
        return {name: base64.b64decode(text, validate=True) for name, text in release.files.items()}
    except (binascii.Error, ValueError):
        raise WireError("release map", "a file is not base64") from None


def encode_membership(target: MembershipTarget) -> bytes:
    """Compressed ``membership.json``."""
    return zstandard.ZstdCompressor(level=9).compress(encode(target))


def decode_membership(payload: bytes) -> MembershipTarget:
    """Read a compressed ``membership.json``; never more than the cap in memory.

    Raises:
        WireError: not zstd, too large when unpacked, or malformed.
    """
    return decode(MembershipTarget, unpack(payload, TARGET_CAP_BYTES, "membership"), cap_bytes=TARGET_CAP_BYTES)


def unpack(payload: bytes, cap_bytes: int, what: str) -> bytes:
    """Unpack one zstd frame whose stated content size is within the cap.

    Raises:
        WireError: not zstd, no stated size, larger than the cap, or corrupt.
    """
    if len(payload) > cap_bytes + cap_bytes // 128 + 1024:
        raise WireError(what, f"{len(payload)} packed bytes, the cap is {cap_bytes}")
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= cap_bytes:
            raise WireError(what, f"unpacked size {size} is unknown or above the cap of {cap_bytes}")
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=cap_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(what, f"not zstd ({error})") from None
