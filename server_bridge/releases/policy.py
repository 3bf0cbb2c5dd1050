"""What the signer refuses to sign, whoever asks."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.errors import DataError, RejectedUpdate, StorageError
from edge_agent.link.durable import read_file
from edge_agent.model.bundle import load_bundle
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.codec import decode
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.release import (
    MEMBERSHIP_TARGET,
    TARGET_CAP_BYTES,
    CohortTarget,
    WeightsStatement,
    cohort_target,
    decode_membership,
)
from edge_agent.wire.roles import personal_specs
from edge_agent.wire.tensors import Weights, check_weights, decode_weights


@dataclass(frozen=True, slots=True)
class SigningLimits:
    """Bounds on what is signed.

    Attributes:
        releases_per_hour: release maps.
        commands_per_minute: signed commands.
        norm_ratio: the L2 distance of weights from the bundle's initial ones may be this many
            times the initial ones' norm (at least 1).
    """

    releases_per_hour: int = 120
    commands_per_minute: int = 12_000
    norm_ratio: float = 20.0


DEFAULT_LIMITS = SigningLimits()


class RateLimit:
    """At most ``count`` in any ``window_s`` seconds."""

    def __init__(self, what: str, count: int, window_s: float, monotonic: Callable[[], float]) -> None:
        self._what = what
        self._count = count
        self._window_s = window_s
        self._monotonic = monotonic
        self._taken: deque[float] = deque()

    def take(self) -> None:
        """Count one.

        Raises:
            RejectedUpdate: ``rate``.
        """
        now_s = self._monotonic()
        while self._taken and self._taken[0] <= now_s - self._window_s:
            self._taken.popleft()
        if len(self._taken) >= self._count:
            raise RejectedUpdate("rate", f"more than {self._count} {self._what} in {self._window_s:.0f} s")
        self._taken.append(now_s)


class ReleasePolicy:
    """Checks a release's target files before they are signed.

    Args:
        bundles: the folder of installed bundles, ``<digest>/``.
    """

    def __init__(self, bundles: Path, limits: SigningLimits) -> None:
        self._bundles = bundles
        self._limits = limits

    def check(
        self,
        references: Mapping[str, BlobReference],
        contents: Mapping[str, bytes],
        weights: Mapping[str, Path],
        signed_before: Mapping[str, BlobReference],
    ) -> None:
        """Refuse a release that no bridge in its right mind would make.

        Args:
            references: target name to reference.
            contents: target name to bytes, the same names.
            weights: weights digest to file.
            signed_before: what this signer signed last; unchanged targets are not checked again.

        Raises:
            RejectedUpdate: with a reason: ``malformed``, ``unknown_bundle``, ``unknown_cohort``,
                ``unfit_weights`` or ``norm``.
        """
        if set(references) != set(contents) or MEMBERSHIP_TARGET not in contents:
            raise RejectedUpdate("malformed", "target files and references differ, or there is no membership")
        for name, content in contents.items():
            if references[name].digest != sha256_hex(content) or references[name].length != len(content):
                raise RejectedUpdate("malformed", f"{name} is not the file its reference names")
        self._check_membership(contents)
        for name in sorted(contents):
            if name != MEMBERSHIP_TARGET and signed_before.get(name) != references[name]:
                self._check_cohort(name, contents[name], weights)

    def _check_membership(self, contents: Mapping[str, bytes]) -> None:
        try:
            members = decode_membership(contents[MEMBERSHIP_TARGET]).gateways
        except WireError as error:
            raise RejectedUpdate("malformed", str(error)) from None
        for gateway, member in members.items():
            if cohort_target(member.bundle, member.cohort) not in contents:
                raise RejectedUpdate("unknown_cohort", f"{gateway} belongs to {member.cohort}, which has no weights")

    def _check_cohort(self, name: str, content: bytes, weights: Mapping[str, Path]) -> None:
        try:
            target = decode(CohortTarget, content, cap_bytes=TARGET_CAP_BYTES)
        except WireError as error:
            raise RejectedUpdate("malformed", f"{name}: {error}") from None
        if name != cohort_target(target.bundle, target.cohort):
            raise RejectedUpdate("malformed", f"{name} speaks of {target.bundle}/{target.cohort}")
        for statement in (target.current, target.candidate):
            if statement is not None:
                self._check_weights(target.bundle, statement, weights)

    def _check_weights(self, bundle_digest: str, statement: WeightsStatement, weights: Mapping[str, Path]) -> None:
        digest = statement.weights.digest
        if digest not in weights:
            raise RejectedUpdate("unfit_weights", f"the file of weights {digest} was not given")
        try:
            bundle = load_bundle(self._bundles / bundle_digest, digest=bundle_digest)
            initial = bundle.initial_weights()
        except DataError as error:
            raise RejectedUpdate("unknown_bundle", str(error)) from None
        try:
            data = read_file(weights[digest], cap_bytes=statement.weights.length)
            offered = decode_weights(data)
            check_weights(offered, bundle.manifest.trainable)
        except (WireError, StorageError) as error:
            raise RejectedUpdate("unfit_weights", str(error)) from None
        if sha256_hex(data) != digest:
            raise RejectedUpdate("unfit_weights", f"{weights[digest]} is not the file {digest}")
        _check_personal(offered, initial, bundle.manifest.trainable)
        _check_norm(offered, initial, self._limits.norm_ratio)


def _check_personal(offered: Weights, initial: Weights, specs: Sequence[TrainableSpec]) -> None:
    """No release holds a gateway's personal values: each has the bundle's in their place, bit for bit."""
    for spec in personal_specs(specs):
        if offered[spec.name].tobytes() != initial[spec.name].tobytes():
            raise RejectedUpdate("unfit_weights", f"personal tensor {spec.name!r} is not as in the bundle")


def _check_norm(offered: Weights, initial: Weights, ratio: float) -> None:
    bound = ratio * max(1.0, _norm(initial))
    distance = _norm({name: offered[name].astype(np.float64) - initial[name] for name in initial})
    if not distance <= bound:
        raise RejectedUpdate("norm", f"the weights are {distance:.3g} away from the bundle's, the bound is {bound:.3g}")


def _norm(tensors: Mapping[str, np.typing.NDArray[np.floating]]) -> float:
    squares = [float(np.sum(np.square(tensor, dtype=np.float64))) for tensor in tensors.values()]
    return float(np.sqrt(sum(squares)))
