"""What following a stream leaves for the next time, and for whoever serves it: one file, checked as a whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from edge_agent.errors import DataError, WireError
from edge_agent.wire.tensors import Weights, decode_weights

_DIGEST_BYTES, _LENGTH_BYTES = 32, 4


@dataclass(frozen=True, slots=True)
class SavedOverlay:
    """An overlay, what it was made of, and what it was judged on.

    Attributes:
        digest: of release and overlay together, as weights are named.
        batches: that made it.
        first, last: ids of the first sample that it followed, and of the last.
        judged: id of the newest labelled sample that judged it; None: none has.
        evidence: what all looks have come to, as :meth:`edge_agent.training.lost_classes.Evidence.to_json` gave it.
        saved: as :meth:`edge_agent.training.online_adapter.OnlineAdapter.save` gave it.
    """

    digest: str
    batches: int
    first: str
    last: str
    judged: str | None
    evidence: Mapping[str, Any]
    saved: bytes

    def encode(self) -> bytes:
        """As a file."""
        told = {name: getattr(self, name) for name in ("digest", "batches", "first", "last", "judged", "evidence")}
        head = json.dumps(told).encode()
        whole = len(head).to_bytes(_LENGTH_BYTES, "little") + head + self.saved
        return sha256(whole).digest() + whole

    def weights(self) -> Weights:
        """Release and overlay together.

        Raises:
            DataError: they cannot be read.
        """
        return saved_weights(self.saved)


def decode_overlay(payload: bytes) -> SavedOverlay:
    """From :meth:`SavedOverlay.encode`.

    Raises:
        DataError: a bit of it is not what was written.
    """
    whole = payload[_DIGEST_BYTES:]
    if sha256(whole).digest() != payload[:_DIGEST_BYTES]:
        raise DataError("the overlay's file is damaged", "the release is served alone, and followed anew")
    size = int.from_bytes(whole[:_LENGTH_BYTES], "little")
    try:
        head: dict[str, Any] = json.loads(whole[_LENGTH_BYTES : _LENGTH_BYTES + size])
        return SavedOverlay(
            str(head["digest"]),
            int(head["batches"]),
            str(head["first"]),
            str(head["last"]),
            head["judged"],
            dict(head["evidence"]),
            whole[_LENGTH_BYTES + size :],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"the overlay's file cannot be read ({error})", "it was written by another version") from None


def saved_weights(saved: bytes) -> Weights:
    """The weights in what an adapter saved.

    Raises:
        DataError: they cannot be read.
    """
    size = int.from_bytes(saved[:_LENGTH_BYTES], "little")
    try:
        return decode_weights(saved[_LENGTH_BYTES + size :])
    except WireError as error:
        raise DataError(f"online adapter: the saved overlay cannot be read ({error})", "start anew") from None
