"""Content-addressed blobs: references, chunk lists, chunks."""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.wire.codec import Count, Digest, Items, Message, WireModel, decode, encode
from edge_agent.wire.errors import WireError

CHUNK_BYTES_DEFAULT = 32 * 1024
CHUNK_LIST_CAP_BYTES = 128 * 1024
MAX_CHUNKS = 1900  # 67 bytes of JSON each, within the cap
ChunkBytes = Literal[16384, 32768, 65536, 131072]
CHUNK_BYTES_CHOICES: tuple[ChunkBytes, ...] = (16384, 32768, 65536, 131072)


class BlobReference(WireModel):
    """Names a blob: SHA-256 of its bytes, length in bytes, SHA-256 of its chunk list."""

    digest: Digest
    length: Count
    chunk_list: Digest


class ChunkList(Message):
    """Chunk size and every chunk's SHA-256, in order."""

    length: Count
    chunk_bytes: ChunkBytes
    digests: Annotated[Items[Digest], Field(max_length=MAX_CHUNKS)]

    @model_validator(mode="after")
    def _covers_length(self) -> Self:
        if len(self.digests) != chunk_count(self.length, self.chunk_bytes):
            raise ValueError("number of digests does not fit length and chunk_bytes")
        return self


def sha256_hex(data: bytes) -> str:
    """SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def chunk_count(length: int, chunk_bytes: int) -> int:
    """How many chunks cover ``length`` bytes; 0 for an empty blob."""
    return -(-length // chunk_bytes)


def chunks(data: bytes, chunk_bytes: int) -> Iterator[bytes]:
    """The chunks of ``data`` in order; the last may be shorter."""
    for start in range(0, len(data), chunk_bytes):
        yield data[start : start + chunk_bytes]


def fitting_chunk_bytes(length: int) -> ChunkBytes:
    """The default chunk size, or the least larger one by which a chunk list holds the blob.

    Raises:
        WireError: the blob is over 237 MiB.
    """
    for chunk_bytes in CHUNK_BYTES_CHOICES[1:]:
        if chunk_count(length, chunk_bytes) <= MAX_CHUNKS:
            return chunk_bytes
    raise WireError("blob", f"{length} bytes are more than {MAX_CHUNKS} chunks of {CHUNK_BYTES_CHOICES[-1]}")


def make_chunk_list(data: bytes, chunk_bytes: ChunkBytes | None = None) -> ChunkList:
    """The chunk list of ``data``.

    Args:
        chunk_bytes: None for the size that fits.

    Raises:
        WireError: too many chunks.
    """
    size = chunk_bytes or fitting_chunk_bytes(len(data))
    if chunk_count(len(data), size) > MAX_CHUNKS:
        raise WireError("blob", f"{len(data)} bytes are more than {MAX_CHUNKS} chunks of {size}")
    digests = [sha256_hex(chunk) for chunk in chunks(data, size)]
    return ChunkList(length=len(data), chunk_bytes=size, digests=digests)


def make_reference(data: bytes, chunk_bytes: ChunkBytes | None = None) -> tuple[BlobReference, bytes]:
    """A blob's reference, and the encoded chunk list that the reference names.

    Raises:
        WireError: too many chunks.
    """
    encoded = encode(make_chunk_list(data, chunk_bytes))
    return BlobReference(digest=sha256_hex(data), length=len(data), chunk_list=sha256_hex(encoded)), encoded


def read_chunk_list(payload: bytes, reference: BlobReference) -> ChunkList:
    """A chunk list from outside, checked against the reference before it is parsed.

    Raises:
        WireError: wrong size, digest, form, or a length that is not the reference's.
    """
    if len(payload) > CHUNK_LIST_CAP_BYTES:
        raise WireError("chunk list", f"{len(payload)} bytes, the cap is {CHUNK_LIST_CAP_BYTES}")
    if sha256_hex(payload) != reference.chunk_list:
        raise WireError("chunk list", "digest differs from the reference")
    chunk_list = decode(ChunkList, payload, cap_bytes=CHUNK_LIST_CAP_BYTES)
    if chunk_list.length != reference.length:
        raise WireError("chunk list", "length differs from the reference")
    return chunk_list


def check_chunk(payload: bytes, index: int, chunk_list: ChunkList) -> None:
    """Refuse a chunk that is not the one the list names.

    Raises:
        WireError: index out of range, or digest differs.
    """
    if not 0 <= index < len(chunk_list.digests):
        raise WireError("chunk", f"index {index} outside 0..{len(chunk_list.digests) - 1}")
    if len(payload) > chunk_list.chunk_bytes or sha256_hex(payload) != chunk_list.digests[index]:
        raise WireError("chunk", f"digest of chunk {index} differs")
