"""What the signer process is asked, and answers."""

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field

from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import Count, Digest, Message, Name, WireModel
from edge_agent.wire.errors import WireError
from server_bridge.releases.repository import RoleVersions


class VersionNumbers(WireModel):
    """:class:`RoleVersions` on the pipe."""

    root: Count
    targets: Count
    bundles: Count
    cohorts: Count
    snapshot: Count
    timestamp: Count

    @classmethod
    def of(cls, versions: RoleVersions) -> "VersionNumbers":
        """From the value."""
        return cls(**{name: getattr(versions, name) for name in RoleVersions.__slots__})

    def value(self) -> RoleVersions:
        """To the value."""
        return RoleVersions(**{name: getattr(self, name) for name in RoleVersions.__slots__})


class SignCommand(WireModel):
    """Sign a command's exact bytes with the command key."""

    op: Literal["command"] = "command"
    body: str


class SignRelease(WireModel):
    """Sign cohorts, snapshot and timestamp metadata.

    ``contents`` are the target files in base64, all of them; ``weights`` the paths of the
    weights files of those cohorts that differ from ``previous_cohorts`` (metadata that this
    signer signed before, base64).
    """

    op: Literal["release"] = "release"
    versions: VersionNumbers
    references: dict[Name, BlobReference]
    contents: dict[Name, str]
    weights: dict[Digest, str]
    previous_cohorts: str | None = None


class SigningRequest(Message):
    """One frame to the signer."""

    request: Annotated[SignCommand | SignRelease, Field(discriminator="op")]


class SigningReply(Message):
    """One frame from the signer: files (base64), or a signature (base64), or a refusal."""

    files: dict[Name, str] | None = None
    key_id: Name | None = None
    signature: str | None = None
    refused: Name | None = None
    problem: str = ""


def to_base64(data: bytes) -> str:
    """Bytes as they travel."""
    return base64.b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Bytes that travelled.

    Raises:
        WireError: not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise WireError("signing", "not base64") from None
