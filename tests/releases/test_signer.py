import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.model.bundle import Bundle
from edge_agent.wire.blobs import BlobReference, make_reference
from edge_agent.wire.codec import encode
from edge_agent.wire.messages.command import Command, Identify
from edge_agent.wire.release import (
    MEMBERSHIP_TARGET,
    CohortTarget,
    Membership,
    MembershipTarget,
    WeightsStatement,
    cohort_target,
    encode_membership,
)
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.releases.keys import FleetKeys, public_hex
from server_bridge.releases.policy import RateLimit, SigningLimits
from server_bridge.releases.repository import RoleVersions, build_offline, build_root, read_versions
from server_bridge.releases.signer_client import SignerClient
from tests.training.personal_bundle import personal_bundle
from tests.training.tiny_bundle import tiny_bundle

Targets = dict[str, tuple[BlobReference, bytes]]


class Bench:
    """A signer on real keys and one installed bundle."""

    def __init__(self, path: Path, limits: SigningLimits, make: Callable[[Path], Bundle] = tiny_bundle) -> None:
        self.path = path
        self.keys = FleetKeys.create(path / "keys")
        made = make(path / "made")
        (path / "bundles").mkdir()
        self.bundle: Bundle = make(path / "bundles" / made.digest)
        self.client = SignerClient(path / "keys", path / "bundles", limits)

    def targets(
        self, weights: Weights, members: dict[str, Membership] | None = None
    ) -> tuple[Targets, dict[str, Path]]:
        data = encode_weights(weights)
        reference, _ = make_reference(data)
        path = self.path / reference.digest
        path.write_bytes(data)
        cohort = CohortTarget(
            bundle=self.bundle.digest,
            cohort="root",
            current=WeightsStatement(version=1, weights=reference, base_version=0),
        )
        contents = {
            MEMBERSHIP_TARGET: encode_membership(MembershipTarget(gateways=members or {})),
            cohort_target(self.bundle.digest, "root"): encode(cohort),
        }
        return {name: (make_reference(one)[0], one) for name, one in contents.items()}, {reference.digest: path}

    def refusal(self, weights: Weights, members: dict[str, Membership] | None = None) -> str:
        with pytest.raises(RejectedUpdate) as caught:
            self.client.sign_release(RoleVersions(), *self.targets(weights, members), None)
        return caught.value.reason


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("signer"), SigningLimits(commands_per_minute=5))
    yield bench
    bench.client.stop()


def command() -> bytes:
    order = Command(
        fleet="plant", gateway="gw1", boot_id="b", command_id="c", sequence=1, duration_s=1.0, action=Identify()
    )
    return encode(order)


def test_a_release_is_signed_by_the_fleets_keys(bench: Bench) -> None:
    targets, weights = bench.targets(bench.bundle.initial_weights())
    versions = RoleVersions(timestamp=3, snapshot=3, cohorts=3)
    online = bench.client.sign_release(versions, targets, weights, None)
    root = build_root(bench.keys, 1, 0.0)["1.root.json"]
    offline = build_offline(bench.keys, versions, {}, {}, 0.0)
    assert read_versions(online | offline, root) == versions

    unchanged = bench.client.sign_release(
        versions.next_online(), targets, {}, online["3.cohorts.json"]
    )  # weights signed before need not be shown again
    assert "4.cohorts.json" in unchanged
    with pytest.raises(RejectedUpdate, match="signed already"):
        bench.client.sign_release(versions, targets, weights, None)


def test_previous_cohorts_of_a_stranger_prove_nothing(bench: Bench) -> None:
    targets, _ = bench.targets(bench.bundle.initial_weights())
    stranger = FleetKeys.generate()
    from server_bridge.releases.repository import build_online

    forged = build_online(stranger.online, RoleVersions(), {name: one[0] for name, one in targets.items()}, 0.0)
    with pytest.raises(RejectedUpdate, match="was not given"):
        bench.client.sign_release(RoleVersions(timestamp=90), targets, {}, forged["1.cohorts.json"])


def test_unfit_weights_are_refused_by_name(bench: Bench) -> None:
    bench.client.stop()
    weights = bench.bundle.initial_weights()
    first = next(iter(weights))
    assert bench.refusal(weights | {first: np.full_like(weights[first], np.nan)}) == "unfit_weights"
    assert bench.refusal(weights | {"more": weights[first]}) == "unfit_weights"
    assert bench.refusal(weights | {first: weights[first] + np.float32(1e6)}) == "norm"
    assert bench.refusal(weights, {"gw1": Membership(bundle=bench.bundle.digest, cohort="c7")}) == "unknown_cohort"


def test_no_release_holds_a_gateways_personal_values(tmp_path: Path) -> None:
    bench = Bench(tmp_path, SigningLimits(), personal_bundle)
    weights = bench.bundle.initial_weights()
    assert bench.refusal(weights | {"b": np.nextafter(weights["b"], np.float32(1))}) == "unfit_weights"
    moved = weights | {"w": weights["w"] + np.float32(0.1)}
    assert bench.client.sign_release(RoleVersions(), *bench.targets(moved), None)
    bench.client.stop()


def test_an_unknown_bundle_is_refused(bench: Bench, tmp_path: Path) -> None:
    client = SignerClient(bench.path / "keys", tmp_path)
    try:
        targets, weights = bench.targets(bench.bundle.initial_weights())
        with pytest.raises(RejectedUpdate) as caught:
            client.sign_release(RoleVersions(), targets, weights, None)
        assert caught.value.reason == "unknown_bundle"
    finally:
        client.stop()


def test_commands_are_signed_up_to_the_rate_and_nothing_else_is(bench: Bench) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    bench.client.stop()
    key_id, signature = bench.client.sign_command(command())
    assert key_id == bench.keys.online.command_id
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex(bench.keys.online.command)))
    public.verify(signature, command())
    with pytest.raises(RejectedUpdate):
        bench.client.sign_command(b'{"signed": {}}')
    for _ in range(4):
        bench.client.sign_command(command())
    with pytest.raises(RejectedUpdate, match="more than 5"):
        bench.client.sign_command(command())


def test_a_signer_that_died_is_restarted(bench: Bench) -> None:
    bench.client.stop()
    bench.client.sign_command(command())
    process = bench.client._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    bench.client.sign_command(command())
    assert bench.client.alive
    starts = bench.client.starts
    bench.client.stop()
    bench.client.sign_command(command())
    assert bench.client.starts == starts + 1


def test_a_signer_without_keys_is_a_passing_fault(tmp_path: Path) -> None:
    client = SignerClient(tmp_path, tmp_path)
    with pytest.raises(TransientError):
        client.sign_command(command())


def test_the_rate_limit_forgets() -> None:
    now_s = 0.0
    limit = RateLimit("releases", 2, 60.0, lambda: now_s)
    limit.take()
    limit.take()
    with pytest.raises(RejectedUpdate):
        limit.take()
    now_s = 61.0
    limit.take()
