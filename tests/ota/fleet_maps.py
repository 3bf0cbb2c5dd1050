"""Release maps of a small fleet, made by the bridge's own functions."""

import base64
import json
from dataclasses import dataclass, field, replace

from edge_agent.wire.blobs import BlobReference, make_reference, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.release import (
    FLEET_TARGET,
    MEMBERSHIP_TARGET,
    BundleTarget,
    CandidateStatement,
    CohortTarget,
    CommandKey,
    FleetTarget,
    Membership,
    MembershipTarget,
    WeightsStatement,
    bundle_target,
    cohort_target,
    decode_release_map,
    encode_membership,
    encode_release_map,
)
from server_bridge.releases.keys import FleetKeys, public_hex
from server_bridge.releases.repository import RoleVersions, build_offline, build_online, build_root

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0
BUNDLE = sha256_hex(b"bundle")


@dataclass
class FleetMaps:
    """A fleet's keys and content; ``blobs`` holds every blob that its maps name, by digest."""

    keys: FleetKeys = field(default_factory=FleetKeys.generate)
    fleet: str = "plant"
    bundle: str = BUNDLE
    bundle_files: dict[str, bytes] = field(default_factory=lambda: {"manifest.json": b"bundle"})
    blobs: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, Membership] = field(default_factory=dict)
    statements: dict[str, WeightsStatement] = field(default_factory=dict)
    candidates: dict[str, CandidateStatement] = field(default_factory=dict)
    versions: RoleVersions = field(default_factory=RoleVersions)
    now_s: float = NOW_S
    root: bytes = b""

    def __post_init__(self) -> None:
        self.root = build_root(self.keys, 1, self.now_s)["1.root.json"]
        if not self.statements:
            self.set_weights("root", b"weights 1", 1)

    def blob(self, data: bytes) -> BlobReference:
        reference, _ = make_reference(data)
        self.blobs[reference.digest] = data
        return reference

    def set_weights(self, cohort: str, data: bytes, version: int) -> None:
        self.statements[cohort] = WeightsStatement(version=version, weights=self.blob(data), base_version=0)

    def files(self, *, created_s: float | None = None) -> dict[str, bytes]:
        now_s = self.now_s if created_s is None else created_s
        fleet = FleetTarget(
            fleet=self.fleet,
            default_bundle=self.bundle,
            command_keys={self.keys.online.command_id: CommandKey(public=public_hex(self.keys.online.command))},
        )
        bundle = BundleTarget(files={name: self.blob(data) for name, data in self.bundle_files.items()})
        offline = build_offline(
            self.keys,
            self.versions,
            {FLEET_TARGET: self.blob(encode(fleet))},
            {bundle_target(self.bundle): self.blob(encode(bundle))},
            NOW_S,
        )
        targets = {MEMBERSHIP_TARGET: self.blob(encode_membership(MembershipTarget(gateways=self.members)))}
        for cohort, statement in self.statements.items():
            target = CohortTarget(
                bundle=self.bundle, cohort=cohort, current=statement, candidate=self.candidates.get(cohort)
            )
            targets[cohort_target(self.bundle, cohort)] = self.blob(encode(target))
        online = build_online(self.keys.online, self.versions, targets, now_s)
        return {"1.root.json": self.root} | offline | online

    def payload(self, *, created_s: float | None = None) -> bytes:
        return encode_release_map(self.files(created_s=created_s))

    def advance(self) -> "FleetMaps":
        self.versions = self.versions.next_online()
        return self

    def stranger(self) -> "FleetMaps":
        """The same content and versions, signed by other keys."""
        other = replace(self, keys=FleetKeys.generate())
        other.root = self.root
        return other


def flip_signed(payload: bytes, name: str) -> bytes:
    """One character changed inside a signed value (``spec_version``) of one metadata file of a map."""
    files = decode_release_map(payload)
    content = files[name]
    place = content.index(b'"spec_version":"') + len(b'"spec_version":"') + 4
    files[name] = content[:place] + (b"9" if content[place : place + 1] != b"9" else b"8") + content[place + 1 :]
    return encode_release_map(files)


def raw_map(files: dict[str, bytes]) -> bytes:
    """A map without the cap's check."""
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return json.dumps({"schema": 1, "files": encoded}).encode()
