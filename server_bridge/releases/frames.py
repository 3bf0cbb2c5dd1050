"""Length-prefixed JSON over pipes: 4 bytes big-endian, then that many bytes."""

import os
import select
import time

from edge_agent.errors import TransientError

FRAME_CAP_BYTES = 32 * 1024 * 1024
_PREFIX_BYTES = 4


def write_frame(descriptor: int, payload: bytes) -> None:
    """Write one frame.

    Raises:
        TransientError: the other end is gone, or the frame is over the cap.
    """
    if len(payload) > FRAME_CAP_BYTES:
        raise TransientError(f"a frame of {len(payload)} bytes is over the cap of {FRAME_CAP_BYTES}")
    view = memoryview(len(payload).to_bytes(_PREFIX_BYTES, "big") + payload)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise TransientError(f"the pipe is closed: {error}") from error


def read_frame(descriptor: int, *, timeout_s: float | None) -> bytes | None:
    """Read one frame; ``None`` at the end of the pipe between two frames.

    Args:
        timeout_s: for the whole frame; ``None``: the end of the pipe is the only way out.

    Raises:
        TransientError: timed out, cut short or over the cap.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    prefix = _read(descriptor, _PREFIX_BYTES, deadline_s)
    if not prefix:
        return None
    length = int.from_bytes(prefix, "big")
    if len(prefix) < _PREFIX_BYTES or length > FRAME_CAP_BYTES:
        raise TransientError("the frame's length is cut short or over the cap")
    payload = _read(descriptor, length, deadline_s)
    if len(payload) < length:
        raise TransientError("the frame is cut short")
    return payload


def _read(descriptor: int, length: int, deadline_s: float | None) -> bytes:
    parts: list[bytes] = []
    missing = length
    while missing:
        if deadline_s is not None:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise TransientError("the other end of the pipe stays silent")
        part = os.read(descriptor, min(missing, 1 << 20))
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
