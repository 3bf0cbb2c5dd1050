"""The signer: a small process that holds the online keys and checks what it signs.

``python -m server_bridge.releases.signer --keys DIR --bundles DIR``: requests on standard
input, replies on standard output (``frames``). It ends when its input does.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog
from securesystemslib.exceptions import UnverifiedSignatureError
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Targets

from edge_agent.errors import EdgeError, RejectedUpdate
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages.command import COMMAND_CAP_BYTES, Command
from server_bridge.releases.frames import FRAME_CAP_BYTES, read_frame, write_frame
from server_bridge.releases.keys import OnlineKeys
from server_bridge.releases.policy import DEFAULT_LIMITS, RateLimit, ReleasePolicy, SigningLimits
from server_bridge.releases.repository import build_online, cohort_references
from server_bridge.releases.signing import (
    SignCommand,
    SigningReply,
    SigningRequest,
    SignRelease,
    VersionNumbers,
    from_base64,
    to_base64,
)

_log = structlog.get_logger(__name__)


class Signer:
    """Answers signing requests; keys and policy in one place.

    Args:
        clock: seconds since 1970, for the signed ``created`` and expiry.
        monotonic: for the rate limits.
    """

    def __init__(
        self,
        keys: OnlineKeys,
        bundles: Path,
        limits: SigningLimits,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._policy = ReleasePolicy(bundles, limits)
        self._clock = clock
        self._releases = RateLimit("releases", limits.releases_per_hour, 3600.0, monotonic)
        self._commands = RateLimit("commands", limits.commands_per_minute, 60.0, monotonic)
        self._signed_timestamp = 0

    def answer(self, frame: bytes) -> bytes:
        """One reply frame to one request frame; a refusal is a reply too."""
        try:
            request = decode(SigningRequest, frame, cap_bytes=FRAME_CAP_BYTES).request
            reply = self._answer(request)
        except RejectedUpdate as error:
            _log.warning("signing-refused", reason=error.reason, problem=error.problem)
            reply = SigningReply(refused=error.reason, problem=error.problem)
        except (WireError, EdgeError) as error:
            reply = SigningReply(refused="malformed", problem=str(error))
        return encode(reply)

    def _answer(self, request: SignCommand | SignRelease) -> SigningReply:
        if isinstance(request, SignCommand):
            return self._sign_command(request)
        return self._sign_release(request)

    def _sign_command(self, request: SignCommand) -> SigningReply:
        body = request.body.encode()
        decode(Command, body, cap_bytes=COMMAND_CAP_BYTES)  # the command key signs commands, nothing else
        self._commands.take()
        signature = bytes.fromhex(self._keys.command.sign(body).signature)
        return SigningReply(key_id=self._keys.command_id, signature=to_base64(signature))

    def _sign_release(self, request: SignRelease) -> SigningReply:
        self._check_versions(request.versions)
        contents = {name: from_base64(text) for name, text in request.contents.items()}
        weights = {digest: Path(path) for digest, path in request.weights.items()}
        self._policy.check(request.references, contents, weights, self._signed_before(request.previous_cohorts))
        files = build_online(self._keys, request.versions.value(), request.references, self._clock())
        self._signed_timestamp = request.versions.timestamp
        return SigningReply(files={name: to_base64(content) for name, content in files.items()})

    def _check_versions(self, versions: VersionNumbers) -> None:
        if versions.timestamp <= self._signed_timestamp:
            raise RejectedUpdate("rollback", f"timestamp version {self._signed_timestamp} is signed already")
        self._releases.take()

    def _signed_before(self, cohorts: str | None) -> Mapping[str, BlobReference]:
        if cohorts is None:
            return {}
        content = from_base64(cohorts)
        key = self._keys.cohorts.public_key
        try:
            metadata = Metadata[Targets].from_bytes(content)
            key.verify_signature(metadata.signatures[key.keyid], metadata.signed_bytes)
        except (RepositoryError, KeyError, UnverifiedSignatureError):
            return {}
        return cohort_references(content)


def main() -> int:
    """Serve standard input until it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--bundles", type=Path, required=True)
    parser.add_argument("--releases-per-hour", type=int, default=DEFAULT_LIMITS.releases_per_hour)
    parser.add_argument("--commands-per-minute", type=int, default=DEFAULT_LIMITS.commands_per_minute)
    parser.add_argument("--norm-ratio", type=float, default=DEFAULT_LIMITS.norm_ratio)
    given = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    limits = SigningLimits(given.releases_per_hour, given.commands_per_minute, given.norm_ratio)
    signer = Signer(OnlineKeys.load(given.keys), given.bundles, limits, time.time, time.monotonic)
    while (frame := read_frame(sys.stdin.fileno(), timeout_s=None)) is not None:
        write_frame(sys.stdout.fileno(), signer.answer(frame))
    return 0


if __name__ == "__main__":
    sys.exit(main())
