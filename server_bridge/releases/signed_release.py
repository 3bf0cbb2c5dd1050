"""From a draft to the next release: signed, in one map with the metadata that did not change."""

from typing import NamedTuple

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.release import decode_release_map, encode_release_map
from server_bridge.releases.drafting import Draft
from server_bridge.releases.record import ReleaseRecord
from server_bridge.releases.repository import Files, RoleVersions, metadata_files
from server_bridge.releases.signer_client import SignerClient
from server_bridge.releases.signing import VersionNumbers
from server_bridge.store.blobs import BlobFolder


class Release(NamedTuple):
    """What is known of a release, and its map as published."""

    record: ReleaseRecord
    map: bytes


def sign_release(
    former: Release, content: Draft, versions: RoleVersions, signer: SignerClient, blobs: BlobFolder, now_s: float
) -> Release:
    """The release after ``former``.

    Args:
        content: what it says; its weights are in ``blobs``.
        versions: of its online roles, above all that were ever signed.
        now_s: seconds since 1970, for the record.

    Raises:
        RejectedUpdate: the signer's policy refuses, or the map is too large.
        TransientError: the signer is away.
    """
    files = decode_release_map(former.map)
    names = metadata_files(former.record.versions.value())
    paths = {
        statement.weights.digest: path
        for one in content.cohorts
        for statement in (one.current, one.candidate)
        if statement is not None and (path := blobs.path(statement.weights.digest)) is not None
    }
    online = signer.sign_release(versions, content.targets, paths, files[names["cohorts"]])
    replaced = {names[role] for role in ("cohorts", "snapshot", "timestamp")}
    release_map = _encoded({name: data for name, data in files.items() if name not in replaced} | online)
    offline = {name: one for name, one in former.record.targets.items() if not _is_online(name)}
    record = ReleaseRecord(
        number=former.record.number + 1,
        created_s=now_s,
        reason=content.reason,
        versions=VersionNumbers.of(versions),
        fleet=former.record.fleet,
        bundles=former.record.bundles,
        members=dict(content.members),
        cohorts=content.cohorts,
        targets=offline | {name: reference for name, (reference, _) in content.targets.items()},
        highest=dict(content.highest),
        map_digest=sha256_hex(release_map),
    )
    return Release(record, release_map)


def _encoded(files: Files) -> bytes:
    try:
        return encode_release_map(files)
    except WireError as error:
        raise RejectedUpdate("too_large", str(error)) from None


def _is_online(target: str) -> bool:
    return not target.startswith(("fleet.json", "bundles/"))
