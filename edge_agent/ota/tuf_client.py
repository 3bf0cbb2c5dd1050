"""The one module that touches python-tuf: a release map served to its client from memory.

Import it late: tuf takes about 10 MB.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from tuf.api.exceptions import (
    BadVersionNumberError,
    DownloadError,
    DownloadHTTPError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.metadata import TargetFile
from tuf.ngclient import FetcherInterface, Updater

from edge_agent.errors import RejectedUpdate, StorageError
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.release import MEMBERSHIP_TARGET, RELEASE_MAP_CAP_BYTES, bundle_target

_URL = "map:///"
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# A name below each delegation, so that looking it up makes python-tuf load and verify the role.
_PROBES = (MEMBERSHIP_TARGET, bundle_target("none"))
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (ExpiredMetadataError, "expired_or_clock_wrong"),
    (UnsignedMetadataError, "bad_signature"),
    (BadVersionNumberError, "rollback"),
    (LengthOrHashMismatchError, "bad_digest"),
)


@dataclass(frozen=True, slots=True)
class VerifiedRoles:
    """The versions that python-tuf trusts after a map, and the signed time of its making."""

    versions: Mapping[str, int]
    created_s: float


class TufClient:
    """python-tuf's client over one release map.

    Args:
        files: the decoded release map.
        cache: a directory with what was trusted before, in python-tuf's form; it is written to.
        root: the provisioned root's bytes.
        reference_time_s: the time that expiry is judged at, seconds since 1970.

    Raises:
        RejectedUpdate: the provisioned root cannot be used.
    """

    def __init__(self, files: Mapping[str, bytes], cache: Path, root: bytes, reference_time_s: float) -> None:
        with _Translated():
            self._updater = Updater(
                str(cache), _URL, str(cache), _URL, fetcher=_MapFetcher(dict(files)), bootstrap=root
            )
            # tuf has no argument for the clock; the test of this module is pinned to the version that has this field.
            self._updater._trusted_set.reference_time = datetime.fromtimestamp(reference_time_s, UTC)

    def refresh(self) -> VerifiedRoles:
        """Verify every role of the map.

        Raises:
            RejectedUpdate: a role is absent, malformed, unsigned, expired or older than trusted.
            StorageError: the cache directory cannot be written.
        """
        with _Translated():
            self._updater.refresh()
            for name in _PROBES:
                self._updater.get_targetinfo(name)
            trusted = self._updater._trusted_set
            meta = trusted.snapshot.meta
            versions = {name.removesuffix(".json"): file.version for name, file in meta.items()}
            versions |= {
                "root": trusted.root.version,
                "snapshot": trusted.snapshot.version,
                "timestamp": trusted.timestamp.version,
            }
            created_s = _created(trusted.timestamp.unrecognized_fields.get("created"))
            if created_s > trusted.timestamp.expires.timestamp():
                raise RejectedUpdate("malformed", "the map was created after it expired")
            return VerifiedRoles(versions, created_s)

    def target(self, name: str) -> BlobReference | None:
        """What the verified map says of a target; ``None``: nothing.

        Raises:
            RejectedUpdate: ``malformed``: the target's entry has no chunk list.
        """
        with _Translated():
            found = self._updater.get_targetinfo(name)
        return _reference(found) if found is not None else None


class _MapFetcher(FetcherInterface):
    """Serves the files of a map from memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def _fetch(self, url: str) -> Iterator[bytes]:
        content = self._files.get(url.removeprefix(_URL))
        if content is None:
            raise DownloadHTTPError("absent", 404)
        yield content[:RELEASE_MAP_CAP_BYTES]


class _Translated:
    """Turns what python-tuf raises into our errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RepositoryError | DownloadError):
            raise RejectedUpdate(_reason(error), f"{type(error).__name__}: {str(error)[:500]}") from None
        if isinstance(error, OSError):
            raise StorageError(f"the trust cache cannot be written: {error}") from None


def _reason(error: Exception) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "malformed")


def _created(value: object) -> float:
    try:
        return datetime.strptime(str(value), _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise RejectedUpdate("malformed", "the timestamp carries no signed `created`") from None


def _reference(target: TargetFile) -> BlobReference:
    custom = target.custom if isinstance(target.custom, dict) else {}
    try:
        return BlobReference.model_validate(
            {"digest": target.hashes.get("sha256"), "length": target.length, "chunk_list": custom.get("chunk_list")}
        )
    except ValidationError:
        raise RejectedUpdate("malformed", f"target {target.path} has no usable digest and chunk list") from None
