"""What a coding lost of an update, kept until the next round of the same line."""

import hashlib
from pathlib import Path

from edge_agent.errors import DataError
from edge_agent.link.durable import make_directory, put_in_place, read_file, remove_file
from edge_agent.training.job import Lineage
from edge_agent.wire.codec import Digest, WireModel, decode, encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.tensors import WEIGHTS_CAP_BYTES, Weights, decode_weights, encode_weights

FILES_KEPT = 4
HEADER_CAP_BYTES = 4096
_SUFFIX = ".residual"


class _Header(WireModel):
    lineage: Lineage
    digest: Digest


def encode_residual(lineage: Lineage, residual: Weights) -> bytes:
    """A residual with its lineage: one line of JSON, then safetensors."""
    tensors = encode_weights(residual)
    header = _Header(lineage=lineage, digest=hashlib.sha256(tensors).hexdigest())
    return encode(header) + b"\n" + tensors


def decode_residual(payload: bytes) -> tuple[Lineage, Weights]:
    """What :func:`encode_residual` made.

    Raises:
        DataError: it is damaged.
    """
    head, _, tensors = payload.partition(b"\n")
    try:
        header = decode(_Header, head, cap_bytes=HEADER_CAP_BYTES)
        if hashlib.sha256(tensors).hexdigest() != header.digest:
            raise DataError("the residual's digest differs")
        return header.lineage, decode_weights(tensors)
    except WireError as error:
        raise DataError(f"the residual is damaged: {error}") from None


def read_residual(path: Path | None, lineage: Lineage) -> Weights | None:
    """The residual to add in this round, if one of the same line is there.

    Raises:
        DataError, StorageError: there is one, and it is damaged or cannot be read.
    """
    if path is None or not path.exists():
        return None
    earlier, residual = decode_residual(read_file(path, cap_bytes=WEIGHTS_CAP_BYTES + HEADER_CAP_BYTES))
    return residual if lineage.follows(earlier) else None


class Residuals:
    """The durable residuals: one for each bundle, graph and task; the newest few.

    Args:
        folder: made when first needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, lineage: Lineage) -> Path:
        """Where the residual of this bundle, graph and task lies, if there is one."""
        name = "/".join((lineage.bundle, lineage.training_graph, lineage.task or ""))
        return self._folder / (hashlib.sha256(name.encode()).hexdigest()[:32] + _SUFFIX)

    def take(self, made: Path, lineage: Lineage) -> None:
        """Keep the residual of an update that is about to be sent, in the place of the one before.

        Raises:
            StorageError: the disk refused; the one before stays, and is too old for the next round or fits it.
        """
        if not made.exists():
            return
        make_directory(self._folder)
        put_in_place(made, self.path(lineage))
        files = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-FILES_KEPT]:
            remove_file(path)
