"""Updates pulled from gateways: a few granted chunks at a time, within one memory budget."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from edge_agent.wire.blobs import check_chunk, sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import GRANT_MAX_CHUNKS, ChunkGrant, Reply, Train, TrainResult, UpdateManifest

BUDGET_BYTES = 256 * 1024 * 1024
REGRANT_FIRST_S = 4.0
REGRANT_MAX_S = 30.0
SILENT_GRANTS_BEFORE_PARKED = 3
# Of a thousand gateways that upload at once, chunks wait in the broker and in our own inbox: they are not lost.
USUAL_SHARE = 0.1
USUAL_FACTOR = 2.0


class GrantSink(Protocol):
    """Sends a grant to a gateway; may lose it, since silence makes it be sent again."""

    def __call__(self, gateway: str, grant: ChunkGrant, /) -> None:
        """Send it."""
        ...


@dataclass(frozen=True, slots=True)
class Arrived:
    """A whole update whose digest is verified."""

    gateway: str
    command_id: str
    data: bytes
    reply: Reply


@dataclass(slots=True)
class _Upload:
    gateway: str
    command_id: str
    manifest: UpdateManifest
    reply: Reply
    started: bool = False
    received: dict[int, bytes] = field(default_factory=dict)
    granted: set[int] = field(default_factory=set)
    heard_s: float = 0.0
    regrant_s: float = 0.0
    wait_s: float = REGRANT_FIRST_S
    silent: int = 0

    @property
    def size_bytes(self) -> int:
        return self.manifest.chunks.length


def check_manifest(result: TrainResult, action: Train, cap_bytes: int) -> None:
    """Refuse an update that is not the one that was asked for, before a byte of it is sent.

    Raises:
        WireError: another round, cohort, base or coding; empty, or larger than the bundle allows.
    """
    manifest = result.update
    expected = {
        "round": (result.round, action.round),
        "cohort": (result.cohort, action.cohort),
        "base": (manifest.base, action.base.digest),
        "coding": (manifest.coding, action.coding),
    }
    for name, (given, asked) in expected.items():
        if given != asked:
            raise WireError("update manifest", f"{name} is {given!r}, {asked!r} was asked for")
    if not 0 < manifest.chunks.length <= cap_bytes:
        raise WireError("update manifest", f"length {manifest.chunks.length} is outside 1..{cap_bytes}")


class Uploads:
    """The updates now being pulled.

    Args:
        grant: sends a grant.
        monotonic: seconds, never going back.
        budget_bytes: the most that updates in assembly may take together.
    """

    def __init__(self, grant: GrantSink, monotonic: Callable[[], float], budget_bytes: int = BUDGET_BYTES) -> None:
        self._grant = grant
        self._monotonic = monotonic
        self._budget_bytes = budget_bytes
        self._lock = threading.RLock()
        self._uploads: dict[str, _Upload] = {}
        self._usual_s = 0.0

    def begin(self, gateway: str, command_id: str, manifest: UpdateManifest, reply: Reply) -> None:
        """Pull an update; ``manifest`` has been checked. One that is being pulled goes on."""
        with self._lock:
            if command_id not in self._uploads:
                self._uploads[command_id] = _Upload(gateway, command_id, manifest, reply)
        self.tick()

    def chunk(self, gateway: str, digest: str, index: int, payload: bytes) -> Arrived | None:
        """Take a chunk; the whole update with its last one.

        Raises:
            WireError: not granted, or not the chunk that the manifest names.
        """
        with self._lock:
            upload = self._granted(gateway, digest, index)
            check_chunk(payload, index, upload.manifest.chunks)
            upload.received[index] = payload
            upload.granted.discard(index)
            upload.silent, upload.wait_s = 0, REGRANT_FIRST_S
            self._usual_s += USUAL_SHARE * (self._monotonic() - upload.heard_s - self._usual_s)
            self._wait_for(upload)
            if len(upload.received) == len(upload.manifest.chunks.digests):
                return self._assemble(upload)
            if not upload.granted:
                self._next_grant(upload)
        return None

    def forget(self, gateway: str, command_id: str, digest: str) -> None:
        """Tell a gateway that it need not keep an update (any more)."""
        self._grant(gateway, ChunkGrant(command_id=command_id, digest=digest, indices=[]))

    def abandon(self, command_id: str) -> str | None:
        """Stop pulling the update of a command that has ended; its digest, if it was being pulled.

        The gateway keeps it: the same command may be asked again.
        """
        with self._lock:
            upload = self._uploads.pop(command_id, None)
        return None if upload is None else upload.manifest.digest

    def resume(self, gateway: str) -> None:
        """A gateway has started again: what it had been granted is granted anew."""
        with self._lock:
            for upload in self._uploads.values():
                if upload.gateway == gateway and upload.started:
                    self._next_grant(upload)

    def tick(self) -> None:
        """Start what fits the budget, and grant again where nothing has come."""
        now_s = self._monotonic()
        with self._lock:
            for upload in list(self._uploads.values()):
                if upload.started and upload.regrant_s <= now_s:
                    self._grant_again(upload)
            self._start_what_fits()

    @property
    def in_flight_bytes(self) -> int:
        """What the updates in assembly may take."""
        with self._lock:
            return sum(upload.size_bytes for upload in self._uploads.values() if upload.started)

    def _granted(self, gateway: str, digest: str, index: int) -> _Upload:
        for upload in self._uploads.values():
            if upload.gateway == gateway and upload.manifest.digest == digest and index in upload.granted:
                return upload
        raise WireError("chunk", "not granted")

    def _start_what_fits(self) -> None:
        """In one pass: a thousand gateways wait here, and every reply of theirs brings a tick."""
        used = self.in_flight_bytes
        for upload in self._uploads.values():
            if not upload.started and (used == 0 or used + upload.size_bytes <= self._budget_bytes):
                upload.started = True
                used += upload.size_bytes
                self._next_grant(upload)

    def _next_grant(self, upload: _Upload) -> None:
        """Grant the first chunks that are missing; those granted and not come are among them."""
        total = len(upload.manifest.chunks.digests)
        missing = [index for index in range(total) if index not in upload.received]
        upload.granted = set(missing[:GRANT_MAX_CHUNKS])
        self._wait_for(upload)
        grant = ChunkGrant(command_id=upload.command_id, digest=upload.manifest.digest, indices=sorted(upload.granted))
        self._grant(upload.gateway, grant)

    def _wait_for(self, upload: _Upload) -> None:
        """Until when silence is no loss: longer than chunks usually take now."""
        now_s = self._monotonic()
        if not upload.silent:
            upload.heard_s = now_s
        usual_s = min(REGRANT_MAX_S, USUAL_FACTOR * self._usual_s)
        upload.regrant_s = now_s + max(upload.wait_s, usual_s)

    def _grant_again(self, upload: _Upload) -> None:
        """Nothing has come: wait longer; after a few times let others have the budget first."""
        upload.silent += 1
        upload.wait_s = min(2 * upload.wait_s, REGRANT_MAX_S)
        if upload.silent > SILENT_GRANTS_BEFORE_PARKED and self._somebody_waits():
            self._uploads[upload.command_id] = self._uploads.pop(upload.command_id)
            upload.started, upload.silent = False, 0
            upload.received.clear()
            upload.granted.clear()
            return
        self._next_grant(upload)

    def _somebody_waits(self) -> bool:
        return any(not upload.started for upload in self._uploads.values())

    def _assemble(self, upload: _Upload) -> Arrived:
        del self._uploads[upload.command_id]
        data = b"".join(upload.received[index] for index in range(len(upload.received)))
        if sha256_hex(data) != upload.manifest.digest:
            raise WrongDigest(upload)
        return Arrived(upload.gateway, upload.command_id, data, upload.reply)


class WrongDigest(WireError):
    """Every chunk is as its manifest says, and the whole is not.

    Args:
        upload: what was being pulled.
    """

    def __init__(self, upload: _Upload) -> None:
        self.gateway = upload.gateway
        self.command_id = upload.command_id
        self.digest = upload.manifest.digest
        self.reply = upload.reply
        super().__init__("update", "its digest is not the one its manifest names")
