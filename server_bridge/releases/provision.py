"""A new fleet on disk, and the folders that its gateways start from.

<fleet folder>/bridge.toml, root.json, keys/, bundles/<digest>/, blobs/, releases/
<gateway folder>/agent.toml, root.json, floors.json, bundle/, tls/ (when the fleet has an authority)
"""

import json
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_agent.errors import ConfigError, RejectedUpdate, StorageError
from edge_agent.link.durable import make_directory, read_file, write_directory, write_file
from edge_agent.model.bundle import MANIFEST, WEIGHTS, Bundle, load_bundle
from edge_agent.wire.blobs import BlobReference, make_reference, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import (
    FLEET_TARGET,
    MEMBERSHIP_TARGET,
    ROOT_COHORT,
    BundleTarget,
    CohortTarget,
    CommandKey,
    FleetTarget,
    MembershipTarget,
    WeightsStatement,
    bundle_target,
    cohort_target,
    encode_membership,
    encode_release_map,
)
from edge_agent.wire.rights import may_be_gateway
from edge_agent.wire.topics import is_identifier
from server_bridge.pki.authority import TLS_FOLDER, Authority, check_gateway, has_authority, is_private
from server_bridge.releases.keys import FleetKeys, public_hex
from server_bridge.releases.record import FileReleaseBook, ReleaseRecord
from server_bridge.releases.repository import RoleVersions, build_offline, build_online, build_root, check_root
from server_bridge.releases.signing import VersionNumbers
from server_bridge.store.blobs import BlobFolder

BRIDGE_SETTINGS = "bridge.toml"
KEYS_FOLDER = "keys"
BUNDLES_FOLDER = "bundles"
BLOBS_FOLDER = "blobs"
RELEASES_FOLDER = "releases"
ROOT_FILE = "root.json"
ROOT_CAP_BYTES = 512_000
_ROOT_REMEDY = "bring it back from a backup, or from the folder of a gateway provisioned before: it is the same file"


def init_fleet(
    directory: Path,
    bundle_dir: Path,
    fleet: str,
    *,
    host: str = "127.0.0.1",
    port: int = 1883,
    root_keys: int = 1,
    root_threshold: int = 1,
    now_s: float | None = None,
) -> ReleaseRecord:
    """Make keys and release 1: empty membership, the root cohort with the bundle's weights as version 1.

    Nothing is sent: the bridge publishes it when it runs.

    Raises:
        ConfigError: the folder is taken, or a name or number is wrong.
        DataError: the bundle cannot be used.
        StorageError: the disk refused.
    """
    if not is_identifier(fleet):
        raise ConfigError(f"fleet name {fleet!r} is not of the form [A-Za-z0-9_-]{{1,64}}")
    if (directory / BRIDGE_SETTINGS).exists():
        raise ConfigError(f"{directory} already holds a fleet", "choose another directory")
    bundle = load_bundle(bundle_dir)
    make_directory(directory)
    keys = FleetKeys.create(directory / KEYS_FOLDER, root_keys=root_keys, root_threshold=root_threshold)
    contents = bundle_contents(bundle)
    make_directory(directory / BUNDLES_FOLDER)
    write_directory(directory / BUNDLES_FOLDER / bundle.digest, contents)
    first = _FirstRelease(keys, fleet, bundle.digest, contents, time.time() if now_s is None else now_s)
    folder = BlobFolder(directory / BLOBS_FOLDER)
    for data in first.blobs.values():
        folder.put(data)
    record = first.record()
    FileReleaseBook(directory / RELEASES_FOLDER).add(record, first.release_map)
    write_file(directory / ROOT_FILE, first.root)
    write_file(directory / BRIDGE_SETTINGS, _toml({"bridge": {"fleet": fleet}, "broker": {"host": host, "port": port}}))
    return record


def refuse_repeated(gateway_ids: Sequence[str]) -> None:
    """Before a gateway would get two folders or two keys of one name.

    Raises:
        ConfigError: an id is given twice.
    """
    for gateway, times in Counter(gateway_ids).items():
        if times > 1:
            raise ConfigError(f"gateway id {gateway!r} is given {times} times", "give each id once")


def provision_gateway(directory: Path, gateway_ids: Sequence[str], out: Path) -> list[Path]:
    """Write the folder that each gateway starts from; the folders' paths.

    Args:
        directory: the fleet's folder.
        out: gets one folder a gateway.

    Raises:
        ConfigError: an id is wrong or its folder exists, ``directory`` holds no fleet, or a damaged root of trust.
        StorageError: the disk refused.
    """
    latest = FileReleaseBook(directory / RELEASES_FOLDER).latest()
    if latest is None:
        raise ConfigError(f"{directory} holds no fleet", "run `server-bridge init --bundle DIR` first")
    record, _ = latest
    authority = Authority.load(directory, record.fleet.fleet) if has_authority(directory) else None
    refuse_repeated(gateway_ids)
    for gateway in gateway_ids:
        if not may_be_gateway(gateway):
            raise ConfigError(
                f"gateway id {gateway!r} is not of the form [A-Za-z0-9_-]{{1,64}}, or begins as a bridge's name"
            )
        if authority is not None:
            check_gateway(gateway)
        if (out / gateway).exists():
            raise ConfigError(f"{out / gateway} exists already", "remove it, or choose another directory with -o")
    settings = _broker_section(directory)
    if authority is not None:
        settings["credentials"] = TLS_FOLDER
    bundle = load_bundle(directory / BUNDLES_FOLDER / record.fleet.default_bundle, digest=record.fleet.default_bundle)
    shared = {f"bundle/{name}": content for name, content in bundle_contents(bundle).items()}
    shared[ROOT_FILE] = _root(directory)
    shared["floors.json"] = encode(floors_of(record))
    make_directory(out)
    for gateway in gateway_ids:
        own = _toml({"gateway": {"id": gateway, "fleet": record.fleet.fleet, **_PATHS}, "broker": settings})
        credentials = {} if authority is None else authority.gateway(gateway)
        tls = {f"{TLS_FOLDER}/{name}": content for name, content in credentials.items()}
        private = [name for name in tls if is_private(name)]
        write_directory(out / gateway, {**shared, **tls, "agent.toml": own + _SOURCE_HELP}, private=private)
    if authority is not None:
        authority.renew_broker_files()
    return [out / gateway for gateway in gateway_ids]


def _root(directory: Path) -> bytes:
    """A gateway that is handed a damaged root of trust could never verify a release."""
    path = directory / ROOT_FILE
    try:
        root = read_file(path, cap_bytes=ROOT_CAP_BYTES)
        check_root(root)
    except StorageError as error:
        raise ConfigError(error.problem, _ROOT_REMEDY) from error
    except RejectedUpdate as error:
        raise ConfigError(f"{path} is no root of trust: {error.problem}", _ROOT_REMEDY) from error
    return root


def floors_of(record: ReleaseRecord) -> ProvisionedFloors:
    """The floors of a gateway that is provisioned while ``record`` is the latest release."""
    versions = record.versions
    return ProvisionedFloors(
        root=versions.root,
        targets=versions.targets,
        bundles=versions.bundles,
        cohorts=versions.cohorts,
        snapshot=versions.snapshot,
        timestamp=versions.timestamp,
        created_s=float(int(record.created_s)),
        map_digest=record.map_digest,
    )


def bundle_contents(bundle: Bundle) -> dict[str, bytes]:
    """Every file of a bundle by name, its manifest included."""
    contents = {name: bundle.read(name) for name in bundle.manifest.files}
    return contents | {MANIFEST: read_file(bundle.path / MANIFEST)}


class _FirstRelease:
    """Release 1, made with every key at hand."""

    def __init__(self, keys: FleetKeys, fleet: str, bundle: str, contents: Mapping[str, bytes], now_s: float) -> None:
        self.blobs: dict[str, bytes] = {}
        self._now_s = now_s
        versions = RoleVersions()
        self._fleet = FleetTarget(
            fleet=fleet,
            default_bundle=bundle,
            command_keys={keys.online.command_id: CommandKey(public=public_hex(keys.online.command))},
        )
        self._bundle = BundleTarget(files={name: self._blob(data) for name, data in contents.items()})
        current = WeightsStatement(version=1, weights=self._blob(contents[WEIGHTS]), base_version=0)
        self._cohort = CohortTarget(bundle=bundle, cohort=ROOT_COHORT, current=current)
        top = {FLEET_TARGET: self._blob(encode(self._fleet))}
        bundles = {bundle_target(bundle): self._blob(encode(self._bundle))}
        cohorts = {
            MEMBERSHIP_TARGET: self._blob(encode_membership(MembershipTarget(gateways={}))),
            cohort_target(bundle, ROOT_COHORT): self._blob(encode(self._cohort)),
        }
        self._targets = top | bundles | cohorts
        root = build_root(keys, versions.root, now_s)
        self.root = root[f"{versions.root}.root.json"]
        offline = build_offline(keys, versions, top, bundles, now_s)
        self.release_map = encode_release_map(root | offline | build_online(keys.online, versions, cohorts, now_s))

    def record(self) -> ReleaseRecord:
        """What the release book keeps."""
        bundle = self._cohort.bundle
        return ReleaseRecord(
            number=1,
            created_s=self._now_s,
            reason="init",
            versions=VersionNumbers.of(RoleVersions()),
            fleet=self._fleet,
            bundles={bundle: self._bundle},
            members={},
            cohorts=[self._cohort],
            targets=self._targets,
            highest={cohort_target(bundle, ROOT_COHORT): 1},
            map_digest=sha256_hex(self.release_map),
        )

    def _blob(self, data: bytes) -> BlobReference:
        reference, _ = make_reference(data)
        self.blobs[reference.digest] = data
        return reference


_PATHS = {"data_dir": "data", "bundle": "bundle", "root": ROOT_FILE, "floors": "floors.json"}
_SOURCE_HELP = b"""
# Where samples and labels come from; one of:
#
# [source]
# kind = "mqtt"
# host = "127.0.0.1"
# samples_topic = "plant/samples"
# labels_topic = "plant/labels"
#
# [source]
# kind = "replay"
# path = "recording.npz"
# rate_hz = 10.0
"""


def _broker_section(directory: Path) -> dict[str, object]:
    try:
        settings = tomllib.loads(read_file(directory / BRIDGE_SETTINGS, cap_bytes=ROOT_CAP_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{directory / BRIDGE_SETTINGS} is not TOML: {error}") from None
    broker = settings.get("broker", {})
    return {key: broker[key] for key in ("host", "port", "keepalive_s") if key in broker}


def _toml(sections: Mapping[str, Mapping[str, object]]) -> bytes:
    lines: list[str] = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
        lines.append("")
    return "\n".join(lines).encode()
