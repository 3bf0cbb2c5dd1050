"""Which release maps are trusted: floors first, then python-tuf, then the floors rise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent.errors import RejectedUpdate, WireError
from edge_agent.link.durable import make_directory, read_file, remove_directory, write_file
from edge_agent.link.settings import CLOCK_FAR_AHEAD_S
from edge_agent.ota.claims import read_claims
from edge_agent.ota.floors import ROLES, Floors, Versioned
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.messages.state import ClockTrust
from edge_agent.wire.release import decode_release_map

if TYPE_CHECKING:
    from edge_agent.ota.tuf_client import TufClient

_STORED = "trusted.map"
_CACHE = "tuf"
_BEFORE_ANY_EXPIRY_S = 0.0


@dataclass(frozen=True, slots=True)
class VerifiedMap:
    """A release map whose every role is verified; ``digest`` is the SHA-256 of its bytes."""

    digest: str
    payload: bytes
    roles: Mapping[str, Versioned]
    created_s: float
    _client: "TufClient"

    def target(self, name: str) -> BlobReference | None:
        """What the map says of a target; ``None``: nothing.

        Raises:
            RejectedUpdate: ``malformed``.
        """
        return self._client.target(name)


class TrustedReleases:
    """Judges release maps.

    Args:
        directory: ours alone; holds the map trusted last and python-tuf's cache, which is rebuilt
            from that map each time, so that a map refused half-way leaves nothing behind.
        root: the provisioned root's bytes.
        floors: of this gateway.
        clock: seconds since 1970; may be wrong.

    Raises:
        StorageError: the directory cannot be made.
    """

    def __init__(self, directory: Path, root: bytes, floors: Floors, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._root = root
        self._floors = floors
        self._clock = clock
        make_directory(directory)

    def examine(self, payload: bytes) -> VerifiedMap:
        """Verify a map; nothing changes yet.

        Raises:
            RejectedUpdate: with a reason: ``malformed``, ``floors_lost``, ``rollback``, ``fork``,
                ``bad_signature``, ``bad_digest`` or ``expired_or_clock_wrong``.
            StorageError: the disk refused.
        """
        digest = sha256_hex(payload)
        try:
            files = decode_release_map(payload)
            claims = read_claims(files)
        except WireError as error:
            raise RejectedUpdate("malformed", str(error)) from None
        self._floors.check_map(digest, claims)
        reference_time_s = max(self._clock(), self._floors.time_floor_s)
        verified = self._verify(digest, payload, files, claims, reference_time_s)
        self._floors.check_files(claims)
        return verified

    def accept(self, verified: VerifiedMap) -> None:
        """Raise the floors to a verified map, then keep its bytes.

        Raises:
            StorageError: the disk refused; the floors may have risen, the map can be accepted again.
        """
        self._floors.raise_map(verified.digest, verified.roles, verified.created_s)
        if self.stored() != verified.payload:
            write_file(self._directory / _STORED, verified.payload)

    def stored(self) -> bytes | None:
        """The bytes of the map trusted last, unless lost or damaged."""
        path = self._directory / _STORED
        if not path.is_file():
            return None
        payload = read_file(path)
        try:
            decode_release_map(payload)
        except WireError:
            return None
        return payload

    def recover_floors(self) -> bool:
        """Rebuild lost floors from the stored map, if that verifies; returns whether they are there.

        Raises:
            StorageError: the disk refused.
        """
        if self._floors.initialised:
            return True
        payload = self.stored()
        if payload is None:
            return False
        files = decode_release_map(payload)
        try:
            verified = self._verify(sha256_hex(payload), payload, files, read_claims(files), _BEFORE_ANY_EXPIRY_S)
        except (WireError, RejectedUpdate):
            return False
        self._floors.raise_map(verified.digest, verified.roles, verified.created_s)
        return True

    @property
    def clock_trust(self) -> ClockTrust:
        """Whether the clock may be right: from the time floor on, and less than ten years past it.

        Nothing else vouches for it: without a floor, and so far past every signed time, no clock is trusted.
        """
        floor_s = self._floors.time_floor_s
        return ClockTrust(trusted=0.0 <= self._clock() - floor_s < CLOCK_FAR_AHEAD_S, floor_s=floor_s)

    def _verify(
        self,
        digest: str,
        payload: bytes,
        files: dict[str, bytes],
        claims: dict[str, Versioned],
        reference_time_s: float,
    ) -> VerifiedMap:
        from edge_agent.ota.tuf_client import TufClient  # late: tuf takes about 10 MB

        client = TufClient(files, self._rebuilt_cache(), self._root, reference_time_s)
        verified = client.refresh()
        if any(verified.versions.get(role) != claims[role].version for role in ROLES):
            raise RejectedUpdate("malformed", "the map's file names and its signed versions differ")
        return VerifiedMap(digest, payload, claims, verified.created_s, client)

    def _rebuilt_cache(self) -> Path:
        cache = self._directory / _CACHE
        remove_directory(cache)
        make_directory(cache / "root_history")
        for name, content in self._stored_roles().items():
            write_file(cache / name, content)
        return cache

    def _stored_roles(self) -> dict[str, bytes]:
        """The stored map's files under the names that python-tuf's cache has for them."""
        payload = self.stored()
        if payload is None:
            return {}
        files = decode_release_map(payload)
        roots = {f"root_history/{name}": content for name, content in files.items() if name.endswith(".root.json")}
        try:
            claims = read_claims(files)
        except WireError:
            return roots
        names = {role: f"{claims[role].version}.{role}.json" for role in ROLES if role not in ("root", "timestamp")}
        cached = {f"{role}.json": files[name] for role, name in names.items()}
        return roots | cached | {"timestamp.json": files["timestamp.json"]}
