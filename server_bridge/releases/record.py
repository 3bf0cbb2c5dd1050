"""A release as the bridge keeps it: what it says, the exact map, and the counters that never go back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field

from edge_agent.errors import StorageError
from edge_agent.link.durable import (
    make_directory,
    read_file,
    remove_file,
    sweep_temporaries,
    write_file,
)
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.codec import Count, Digest, Finite, Identifier, Message, Name, Text, decode, encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.release import (
    RELEASE_MAP_CAP_BYTES,
    BundleTarget,
    CohortTarget,
    FleetTarget,
    Membership,
    cohort_target,
)
from server_bridge.releases.signing import VersionNumbers

RECORD_CAP_BYTES = 64 * 1024 * 1024
RECORDS_KEPT = 20
NUMBER_DIGITS = 15


class ReleaseRecord(Message):
    """One release.

    Attributes:
        number: counts releases.
        targets: every target file of the map, by target name.
        highest: the highest weights version ever given out, by cohort target name.
        map_digest: SHA-256 of the ``all/release`` payload.
    """

    number: Count
    created_s: Finite
    reason: Text
    versions: VersionNumbers
    fleet: FleetTarget
    bundles: dict[Digest, BundleTarget]
    members: dict[Identifier, Membership]
    cohorts: Annotated[list[CohortTarget], Field(min_length=1)]
    targets: dict[Name, BlobReference]
    highest: dict[Name, Count]
    map_digest: Digest

    @property
    def blobs(self) -> list[BlobReference]:
        """Every blob a gateway may fetch for this release; bundles and weights before target files."""
        return list({reference.digest: reference for reference in self._references()}.values())

    def cohort(self, bundle: str, cohort: str) -> CohortTarget | None:
        """A cohort's target, if it has one."""
        return next((one for one in self.cohorts if (one.bundle, one.cohort) == (bundle, cohort)), None)

    def highest_version(self, bundle: str, cohort: str) -> int:
        """The highest weights version ever given out for a cohort; 0: none."""
        return self.highest.get(cohort_target(bundle, cohort), 0)

    def _references(self) -> Iterator[BlobReference]:
        for bundle in self.bundles.values():
            yield from bundle.files.values()
        for cohort in self.cohorts:
            yield cohort.current.weights
            if cohort.candidate is not None:
                yield cohort.candidate.weights
        yield from self.targets.values()


def cohort_number(cohort: str) -> int:
    """The number in a cohort's id; 0: it has none, as the root."""
    digits = cohort.removeprefix("c")
    return int(digits) if digits != cohort and digits.isdecimal() and len(digits) <= NUMBER_DIGITS else 0


def highest_cohort(record: ReleaseRecord) -> int:
    """The highest number of a cohort that had weights up to this release."""
    names = [name.rpartition("/")[2].removesuffix(".json") for name in record.highest]
    return max((cohort_number(name) for name in names), default=0)


class ReleaseBook(Protocol):
    """Where releases are kept; its numbers only rise."""

    def latest(self) -> tuple[ReleaseRecord, bytes] | None:
        """The newest release and its exact map bytes."""
        ...

    def knows(self, map_digest: str) -> bool:
        """Whether a map of that digest is one of ours."""
        ...

    def add(self, record: ReleaseRecord, release_map: bytes) -> None:
        """Keep a release for good before it is published.

        Raises:
            StorageError: the disk refused, or the number is not above the latest.
        """
        ...


class FileReleaseBook:
    """A :class:`ReleaseBook` in a folder: ``<number>.map``, then ``<number>.json``, which makes it valid.

    Raises:
        StorageError: the folder cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_directory(directory)

    def latest(self) -> tuple[ReleaseRecord, bytes] | None:
        """The newest release and its exact map bytes."""
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def knows(self, map_digest: str) -> bool:
        """Whether a map of that digest is among the releases kept."""
        return any(self._read(number)[0].map_digest == map_digest for number in self._numbers())

    def blobs(self) -> set[str]:
        """Digests of every blob that a release kept here names."""
        return {blob.digest for number in self._numbers() for blob in self._read(number)[0].blobs}

    def add(self, record: ReleaseRecord, release_map: bytes) -> None:
        """Keep a release; the oldest beyond the newest few are removed."""
        sweep_temporaries(self._directory)
        numbers = self._numbers()
        if numbers and record.number <= numbers[-1]:
            raise StorageError(f"release {record.number} is not above {numbers[-1]} in {self._directory}")
        write_file(self._directory / f"{record.number}.map", release_map)
        write_file(self._directory / f"{record.number}.json", encode(record))
        for number in numbers[: max(0, len(numbers) + 1 - RECORDS_KEPT)]:
            remove_file(self._directory / f"{number}.json")
            remove_file(self._directory / f"{number}.map")

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.json") if path.stem.isdecimal())

    def _read(self, number: int) -> tuple[ReleaseRecord, bytes]:
        path = self._directory / f"{number}.json"
        release_map = read_file(path.with_suffix(".map"), cap_bytes=RELEASE_MAP_CAP_BYTES)
        try:
            record = decode(ReleaseRecord, read_file(path, cap_bytes=RECORD_CAP_BYTES), cap_bytes=RECORD_CAP_BYTES)
        except WireError as error:
            raise StorageError(f"{path} is damaged: {error}", "restore the releases folder from a backup") from None
        if sha256_hex(release_map) != record.map_digest:
            raise StorageError(f"{path.with_suffix('.map')} is damaged", "restore the releases folder from a backup")
        return record, release_map
