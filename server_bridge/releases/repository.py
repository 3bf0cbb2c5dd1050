"""TUF metadata of a fleet: built and signed from values, without disk or network.

root (offline) ─ targets (offline: ``fleet.json``) ─┬─ bundles (offline: ``bundles/*``)
                                                    └─ cohorts (online: ``membership.json``, ``cohorts/*/*``)
snapshot and timestamp (online) bind one version of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Role,
    Root,
    Signed,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.blobs import CHUNK_BYTES_DEFAULT, BlobReference
from server_bridge.releases.keys import FleetKeys, OnlineKeys

OFFLINE_LIFETIME_S = 3 * 365 * 86_400
ONLINE_LIFETIME_S = 60 * 86_400
BUNDLES_ROLE = "bundles"
COHORTS_ROLE = "cohorts"
BUNDLES_PATHS = ("bundles/*",)
COHORTS_PATHS = ("membership.json", "cohorts/*/*")

Files = dict[str, bytes]
S = TypeVar("S", Timestamp, Snapshot, Targets)


@dataclass(frozen=True, slots=True)
class RoleVersions:
    """Versions of the six roles in one release map."""

    root: int = 1
    targets: int = 1
    bundles: int = 1
    cohorts: int = 1
    snapshot: int = 1
    timestamp: int = 1

    def next_online(self) -> "RoleVersions":
        """The versions after a release that changes cohorts or membership only."""
        return replace(self, cohorts=self.cohorts + 1, snapshot=self.snapshot + 1, timestamp=self.timestamp + 1)

    def at_least(self, other: "RoleVersions") -> "RoleVersions":
        """The greater version of each role."""
        return RoleVersions(*(max(getattr(self, name), getattr(other, name)) for name in self.__slots__))


def metadata_files(versions: RoleVersions) -> dict[str, str]:
    """The newest metadata file of each role in a map, by role."""
    names = {role: f"{getattr(versions, role)}.{role}.json" for role in versions.__slots__}
    return names | {"timestamp": "timestamp.json"}


def build_root(keys: FleetKeys, version: int, now_s: float, *, lifetime_s: float = OFFLINE_LIFETIME_S) -> Files:
    """The root of trust, signed by every root key."""
    root = Root(version=version, expires=_expiry(now_s, lifetime_s), consistent_snapshot=True)
    for signer in keys.root:
        root.add_key(signer.public_key, Root.type)
    root.roles[Root.type] = Role(root.roles[Root.type].keyids, keys.root_threshold)
    for name, signer in (
        ("targets", keys.targets),
        ("snapshot", keys.online.snapshot),
        ("timestamp", keys.online.timestamp),
    ):
        root.add_key(signer.public_key, name)
    return {f"{version}.root.json": sign(root, keys.root)}


def check_root(root: bytes) -> int:
    """Whether these bytes are root metadata signed by its own keys; its version. Its expiry is not looked at.

    Raises:
        RejectedUpdate: no release could ever be verified with it.
    """
    try:
        metadata = Metadata[Root].from_bytes(root)
        if not isinstance(metadata.signed, Root):
            raise RejectedUpdate("malformed", f"it is {metadata.signed.type} metadata")
        metadata.verify_delegate(Root.type, metadata)
    except RepositoryError as error:
        raise RejectedUpdate("malformed", f"{type(error).__name__}: {str(error)[:200]}") from None
    return metadata.signed.version


def build_offline(
    keys: FleetKeys,
    versions: RoleVersions,
    fleet_target: Mapping[str, BlobReference],
    bundle_targets: Mapping[str, BlobReference],
    now_s: float,
    *,
    lifetime_s: float = OFFLINE_LIFETIME_S,
) -> Files:
    """Top-level targets with the two delegations, and the bundles role.

    Args:
        fleet_target: target name to reference, top level.
        bundle_targets: target name to reference, delegated to the bundles role.
    """
    expires = _expiry(now_s, lifetime_s)
    targets = Targets(
        version=versions.targets,
        expires=expires,
        targets=_target_files(fleet_target),
        delegations=_delegations(keys),
    )
    bundles = Targets(version=versions.bundles, expires=expires, targets=_target_files(bundle_targets))
    return {
        f"{versions.targets}.targets.json": sign(targets, [keys.targets]),
        f"{versions.bundles}.bundles.json": sign(bundles, [keys.bundles]),
    }


def build_online(
    keys: OnlineKeys,
    versions: RoleVersions,
    cohort_targets: Mapping[str, BlobReference],
    now_s: float,
    *,
    lifetime_s: float = ONLINE_LIFETIME_S,
) -> Files:
    """Cohorts role, snapshot and timestamp of one release.

    Args:
        cohort_targets: ``membership.json`` and ``cohorts/<bundle>/<cohort>.json`` to reference.
    """
    cohorts = Targets(
        version=versions.cohorts, expires=_expiry(now_s, lifetime_s), targets=_target_files(cohort_targets)
    )
    files = {f"{versions.cohorts}.cohorts.json": sign(cohorts, [keys.cohorts])}
    return files | build_binding(keys, versions, now_s, lifetime_s=lifetime_s)


def build_binding(
    keys: OnlineKeys, versions: RoleVersions, now_s: float, *, lifetime_s: float = ONLINE_LIFETIME_S
) -> Files:
    """Snapshot and timestamp over the given versions; the timestamp carries the signed ``created``."""
    expires = _expiry(now_s, lifetime_s)
    meta = {f"{role}.json": MetaFile(version=getattr(versions, role)) for role in ("targets", "bundles", "cohorts")}
    snapshot = Snapshot(version=versions.snapshot, expires=expires, meta=meta)
    timestamp = Timestamp(
        version=versions.timestamp,
        expires=expires,
        snapshot_meta=MetaFile(version=versions.snapshot),
        unrecognized_fields={"created": format_time(now_s)},
    )
    return {
        f"{versions.snapshot}.snapshot.json": sign(snapshot, [keys.snapshot]),
        "timestamp.json": sign(timestamp, [keys.timestamp]),
    }


def sign(signed: Signed, signers: Sequence[CryptoSigner]) -> bytes:
    """Metadata bytes of ``signed`` with every signer's signature."""
    metadata: Metadata[Any] = Metadata(signed)
    for signer in signers:
        metadata.sign(signer, append=True)
    return metadata.to_bytes()


def read_versions(files: Mapping[str, bytes], root: bytes) -> RoleVersions:
    """The versions in a release map, each role's signature checked against its delegator.

    Args:
        files: a decoded release map.
        root: the trusted root's bytes (the map's own roots are not followed).

    Raises:
        RejectedUpdate: a role is absent, malformed or not signed by this fleet's keys.
    """
    try:
        trusted = Metadata[Root].from_bytes(root).signed
        timestamp = _open(Timestamp, files["timestamp.json"], trusted, "timestamp")
        snapshot_version = timestamp.snapshot_meta.version
        snapshot = _open(Snapshot, files[f"{snapshot_version}.snapshot.json"], trusted, "snapshot")
        named = {role: snapshot.meta[f"{role}.json"].version for role in ("targets", "bundles", "cohorts")}
        targets = _open(Targets, files[f"{named['targets']}.targets.json"], trusted, "targets")
        for role in ("bundles", "cohorts"):
            _open(Targets, files[f"{named[role]}.{role}.json"], targets, role)
    except KeyError as error:
        raise RejectedUpdate("malformed", f"the map lacks {error}") from None
    except (RepositoryError, ValueError, TypeError) as error:
        raise RejectedUpdate("bad_signature", f"not signed by this fleet's keys: {error}") from None
    return RoleVersions(trusted.version, snapshot=snapshot_version, timestamp=timestamp.version, **named)


def cohort_references(cohorts: bytes) -> dict[str, BlobReference]:
    """The targets of a cohorts file whose signature is checked already.

    Raises:
        RejectedUpdate: malformed.
    """
    try:
        targets = Metadata[Targets].from_bytes(cohorts).signed.targets
        return {name: _reference(target) for name, target in targets.items()}
    except (RepositoryError, ValueError, KeyError, TypeError) as error:
        raise RejectedUpdate("malformed", f"cohorts metadata: {error}") from None


def format_time(now_s: float) -> str:
    """Seconds since 1970 as UTC ISO time, whole seconds."""
    return _utc(now_s).strftime("%Y-%m-%dT%H:%M:%SZ")


def _open(kind: type[S], data: bytes, delegator: Root | Targets, role: str) -> S:
    metadata = Metadata[S].from_bytes(data)
    delegator.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
    if not isinstance(metadata.signed, kind):
        raise RepositoryError(f"{role} holds {metadata.signed.type} metadata")
    return metadata.signed


def _target_files(references: Mapping[str, BlobReference]) -> dict[str, TargetFile]:
    return {name: _target_file(name, reference) for name, reference in sorted(references.items())}


def _target_file(name: str, reference: BlobReference) -> TargetFile:
    custom = {"chunk_list": reference.chunk_list, "chunk_bytes": CHUNK_BYTES_DEFAULT}
    return TargetFile(reference.length, {"sha256": reference.digest}, name, {"custom": custom})


def _reference(target: TargetFile) -> BlobReference:
    custom = target.custom or {}
    return BlobReference(digest=target.hashes["sha256"], length=target.length, chunk_list=custom["chunk_list"])


def _delegations(keys: FleetKeys) -> Delegations:
    roles = {
        BUNDLES_ROLE: (keys.bundles, BUNDLES_PATHS),
        COHORTS_ROLE: (keys.online.cohorts, COHORTS_PATHS),
    }
    return Delegations(
        keys={signer.public_key.keyid: signer.public_key for signer, _ in roles.values()},
        roles={
            name: DelegatedRole(name, [signer.public_key.keyid], 1, terminating=True, paths=list(paths))
            for name, (signer, paths) in roles.items()
        },
    )


def _utc(now_s: float) -> datetime:
    return datetime.fromtimestamp(now_s, UTC).replace(microsecond=0)


def _expiry(now_s: float, lifetime_s: float) -> datetime:
    return _utc(now_s) + timedelta(seconds=lifetime_s)
