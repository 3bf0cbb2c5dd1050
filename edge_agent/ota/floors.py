"""Floors: the highest versions, and the greatest signed time, that this gateway has ever trusted.

python-tuf alone accepts an old map once its cache files are lost or zeroed; these rows, in the
agent's own database, do not get lost with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from edge_agent.errors import RejectedUpdate, StorageError
from edge_agent.link.database import Database
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages.state import TrustedVersions
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import cohort_target

ROLES = ("root", "targets", "bundles", "cohorts", "snapshot", "timestamp")
_MAP = "map"
_TIME = "time"
_log = structlog.get_logger(__name__)

_TABLES = ("CREATE TABLE floor (name TEXT PRIMARY KEY, version INTEGER NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID",)


@dataclass(frozen=True, slots=True)
class Versioned:
    """A version and the SHA-256 of what carried it; an unknown digest is empty."""

    version: int
    digest: str = ""


class Floors:
    """Floors in the agent's database; they only ever rise.

    Raises:
        StorageError: the table cannot be made.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_time_s = 0.0
        database.define("floors", _TABLES)

    @property
    def initialised(self) -> bool:
        """Whether there is anything to compare with; without, no map may be trusted."""
        return self._get("timestamp") is not None

    @property
    def time_floor_s(self) -> float:
        """The greatest signed ``created`` ever verified, seconds since 1970."""
        floor = self._get(_TIME)
        return float(floor.version) if floor else 0.0

    @property
    def last_known_time_s(self) -> float:
        """The time floor for those who must not fail: while the database refuses, as it was read last."""
        try:
            self._last_time_s = self.time_floor_s
        except StorageError as error:
            _log.error("time_floor_unread", problem=str(error))
        return self._last_time_s

    @property
    def map_digest(self) -> str | None:
        """SHA-256 of the release map trusted last."""
        floor = self._get(_MAP)
        return floor.digest if floor else None

    def provision(self, provisioned: ProvisionedFloors, root: bytes) -> None:
        """Take over what the provisioned folder says; ``root`` are the bytes of its ``root.json``."""
        roles = {role: Versioned(getattr(provisioned, role)) for role in ROLES}
        roles["root"] = Versioned(provisioned.root, sha256_hex(root))
        self.raise_map(provisioned.map_digest, roles, provisioned.created_s)

    def check_map(self, map_digest: str, roles: Mapping[str, Versioned]) -> None:
        """Refuse, by its versions alone, a map that is older than, or another than, what is trusted.

        Raises:
            RejectedUpdate: ``floors_lost``, ``rollback`` or ``fork``.
        """
        if not self.initialised:
            raise RejectedUpdate(
                "floors_lost", "the gateway no longer knows which versions it trusted", "provision the gateway again"
            )
        if map_digest == self.map_digest:
            return
        for role in ROLES:
            self._check_version(role, roles[role])
        trusted = self._get(_MAP)
        if trusted is not None and trusted.version == roles["timestamp"].version:
            raise RejectedUpdate("fork", f"timestamp version {trusted.version} is trusted with another map digest")

    def check_files(self, roles: Mapping[str, Versioned]) -> None:
        """Refuse a verified map with another file for a version that is trusted already.

        Raises:
            RejectedUpdate: ``fork``.
        """
        for role in ROLES:
            self._check_digest(role, roles[role])

    def raise_map(self, map_digest: str, roles: Mapping[str, Versioned], created_s: float) -> None:
        """Raise the floors to a verified map, in one transaction."""
        with self._database.transaction():
            for role in ROLES:
                self._raise(role, roles[role])
            self._raise(_MAP, Versioned(roles["timestamp"].version, map_digest))
            self._raise(_TIME, Versioned(int(created_s)))

    def check_release(self, bundle: str, cohort: str, version: int, weights: str) -> None:
        """Refuse weights older than a cohort's floor, or others of the same version.

        Raises:
            RejectedUpdate: ``rollback`` or ``fork``.
        """
        name, offered = cohort_target(bundle, cohort), Versioned(version, weights)
        self._check_version(name, offered)
        self._check_digest(name, offered)

    def raise_release(self, bundle: str, cohort: str, version: int, weights: str) -> None:
        """Raise a cohort's floor before acting on its release."""
        with self._database.transaction():
            self._raise(cohort_target(bundle, cohort), Versioned(version, weights))

    def trusted_versions(self, bundle: str, cohort: str) -> TrustedVersions:
        """What the state message says of the floors."""
        found = {role: floor.version for role in ROLES if (floor := self._get(role)) is not None}
        release = self._get(cohort_target(bundle, cohort))
        return TrustedVersions(
            root=found.get("root", 0),
            timestamp=found.get("timestamp", 0),
            snapshot=found.get("snapshot", 0),
            targets=found.get("targets", 0),
            release=release.version if release else 0,
            map_digest=self.map_digest,
        )

    def _get(self, name: str) -> Versioned | None:
        rows = self._database.query("SELECT version, digest FROM floor WHERE name = ?", (name,))
        with self._database.understood():
            return Versioned(int(rows[0][0]), str(rows[0][1])) if rows else None

    def _check_version(self, name: str, offered: Versioned) -> None:
        floor = self._get(name)
        if floor is not None and offered.version < floor.version:
            raise RejectedUpdate("rollback", f"{name} version {offered.version} is below the trusted {floor.version}")

    def _check_digest(self, name: str, offered: Versioned) -> None:
        floor = self._get(name)
        if floor is None or not floor.digest or offered.version != floor.version:
            return
        if offered.digest != floor.digest:
            raise RejectedUpdate("fork", f"{name} version {offered.version} is trusted with another digest")

    def _raise(self, name: str, reached: Versioned) -> None:
        self._database.execute(
            "INSERT INTO floor VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version,"
            " digest = excluded.digest WHERE excluded.version > version"
            " OR (excluded.version = version AND digest = '')",
            (name, reached.version, reached.digest),
        )
