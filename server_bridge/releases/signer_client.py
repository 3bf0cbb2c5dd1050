"""The bridge's side of the signer process: started when needed, restarted when it died."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.errors import WireError
from server_bridge.releases.frames import FRAME_CAP_BYTES, read_frame, write_frame
from server_bridge.releases.policy import DEFAULT_LIMITS, SigningLimits
from server_bridge.releases.repository import Files, RoleVersions
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
_ATTEMPTS = 2
_STOP_TIMEOUT_S = 2.0


class SignerClient:
    """Asks the signer process; any thread may call.

    Args:
        keys: the keys directory; this process reads none of it.
        bundles: the folder of installed bundles.
        timeout_s: of one answer.
    """

    def __init__(
        self, keys: Path, bundles: Path, limits: SigningLimits = DEFAULT_LIMITS, *, timeout_s: float = 30.0
    ) -> None:
        self.starts = 0
        self._command = [
            *(sys.executable, "-m", "server_bridge.releases.signer", "--keys", str(keys), "--bundles", str(bundles)),
            *("--releases-per-hour", str(limits.releases_per_hour)),
            *("--commands-per-minute", str(limits.commands_per_minute), "--norm-ratio", str(limits.norm_ratio)),
        ]
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs now; a request starts it."""
        process = self._process
        return process is not None and process.poll() is None

    def sign_command(self, body: bytes) -> tuple[str, bytes]:
        """(key id, Ed25519 signature) over a command's bytes: a ``wire.messages.command.Sign``.

        Raises:
            RejectedUpdate: the policy refuses.
            TransientError: the signer cannot be reached.
        """
        reply = self._ask(SignCommand(body=body.decode()))
        if reply.key_id is None or reply.signature is None:
            raise TransientError("the signer's answer holds no signature")
        return reply.key_id, from_base64(reply.signature)

    def sign_release(
        self,
        versions: RoleVersions,
        targets: Mapping[str, tuple[BlobReference, bytes]],
        weights: Mapping[str, Path],
        previous_cohorts: bytes | None,
    ) -> Files:
        """Signed cohorts, snapshot and timestamp metadata.

        Args:
            targets: name to reference and content, all of the cohorts role.
            weights: digest to file, for targets that differ from ``previous_cohorts``.
            previous_cohorts: the cohorts metadata released last.

        Raises:
            RejectedUpdate: the policy refuses.
            TransientError: the signer cannot be reached.
        """
        request = SignRelease(
            versions=VersionNumbers.of(versions),
            references={name: reference for name, (reference, _) in targets.items()},
            contents={name: to_base64(content) for name, (_, content) in targets.items()},
            weights={digest: str(path) for digest, path in weights.items()},
            previous_cohorts=None if previous_cohorts is None else to_base64(previous_cohorts),
        )
        reply = self._ask(request)
        if reply.files is None:
            raise TransientError("the signer's answer holds no files")
        return {name: from_base64(text) for name, text in reply.files.items()}

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """End the process."""
        with self._lock:
            self._end(timeout_s)

    def _ask(self, request: SignCommand | SignRelease) -> SigningReply:
        frame = encode(SigningRequest(request=request))
        with self._lock:
            reply = self._exchange(frame)
        if reply.refused is not None:
            raise RejectedUpdate(reply.refused, f"the signer refuses: {reply.problem}")
        return reply

    def _exchange(self, frame: bytes) -> SigningReply:
        problem: Exception | None = None
        for _ in range(_ATTEMPTS):
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                write_frame(process.stdin.fileno(), frame)
                answer = read_frame(process.stdout.fileno(), timeout_s=self._timeout_s)
                if answer is not None:
                    return decode(SigningReply, answer, cap_bytes=FRAME_CAP_BYTES)
            except (TransientError, WireError) as error:
                problem = error
            _log.warning("signer-lost", code=process.poll(), problem=str(problem))
            self._end(0.0)
        raise TransientError(f"the signer does not answer: {problem}", "see its messages above; check the keys")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end(0.0)
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            self.starts += 1
        return self._process

    def _end(self, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)
        process.stdout.close()
