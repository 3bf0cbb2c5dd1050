import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.blobs import (
    CHUNK_BYTES_CHOICES,
    CHUNK_LIST_CAP_BYTES,
    MAX_CHUNKS,
    BlobReference,
    ChunkBytes,
    ChunkList,
    check_chunk,
    chunks,
    fitting_chunk_bytes,
    make_chunk_list,
    make_reference,
    read_chunk_list,
    sha256_hex,
)
from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError

sizes = st.sampled_from(CHUNK_BYTES_CHOICES)


def blob_of(length: int) -> bytes:
    return hashlib.shake_128(b"blob").digest(length)


@given(length=st.integers(0, 300_000), chunk_bytes=sizes)
def test_a_blob_comes_back_from_its_chunks(length: int, chunk_bytes: ChunkBytes) -> None:
    data = blob_of(length)
    reference, encoded = make_reference(data, chunk_bytes)
    listed = read_chunk_list(encoded, reference)
    parts = list(chunks(data, chunk_bytes))
    for index, part in enumerate(parts):
        check_chunk(part, index, listed)
    assert len(parts) == len(listed.digests)
    assert b"".join(parts) == data
    assert (reference.length, reference.digest) == (length, hashlib.sha256(data).hexdigest())


@given(length=st.integers(1, 100_000), data=st.data())
def test_a_changed_chunk_is_refused(length: int, data: st.DataObject) -> None:
    blob = blob_of(length)
    listed = make_chunk_list(blob, 16384)
    index = data.draw(st.integers(0, len(listed.digests) - 1))
    part = bytearray(list(chunks(blob, 16384))[index])
    part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(WireError, match=f"chunk {index}"):
        check_chunk(bytes(part), index, listed)


@pytest.mark.parametrize("index", [-1, 1, 10**9])
def test_an_index_outside_the_list_is_refused(index: int) -> None:
    with pytest.raises(WireError, match="outside"):
        check_chunk(b"a", index, make_chunk_list(b"a"))


@given(payload=st.binary(max_size=300))
def test_any_bytes_are_a_chunk_list_or_a_wire_error(payload: bytes) -> None:
    reference = BlobReference(digest="0" * 64, length=1, chunk_list=sha256_hex(payload))
    with pytest.raises(WireError):
        read_chunk_list(payload, reference)


def test_a_chunk_list_is_checked_against_its_reference_before_it_is_parsed() -> None:
    reference, encoded = make_reference(blob_of(40_000))
    with pytest.raises(WireError, match="digest"):
        read_chunk_list(encoded + b" ", reference)
    other = reference.model_copy(update={"length": reference.length + 1})
    with pytest.raises(WireError, match="length"):
        read_chunk_list(encoded, other)
    with pytest.raises(WireError, match="cap"):
        read_chunk_list(b"[" * (CHUNK_LIST_CAP_BYTES + 1), reference)


@pytest.mark.parametrize("length", [0, 2**53])
def test_a_list_that_does_not_cover_its_length_is_refused(length: int) -> None:
    payload = f'{{"schema":1,"length":{length},"chunk_bytes":16384,"digests":["{"0" * 64}"]}}'.encode()
    reference = BlobReference(digest="0" * 64, length=length, chunk_list=sha256_hex(payload))
    with pytest.raises(WireError, match="does not fit"):
        read_chunk_list(payload, reference)


def test_the_longest_list_fits_its_cap() -> None:
    longest = ChunkList(length=MAX_CHUNKS * 131072, chunk_bytes=131072, digests=["f" * 64] * MAX_CHUNKS)
    assert len(encode(longest)) <= CHUNK_LIST_CAP_BYTES


@given(length=st.integers(0, MAX_CHUNKS * 131072))
def test_the_chosen_chunk_size_is_the_least_that_fits(length: int) -> None:
    chosen = fitting_chunk_bytes(length)
    assert -(-length // chosen) <= MAX_CHUNKS
    assert chosen == 32768 or length > MAX_CHUNKS * (chosen // 2)


def test_a_blob_that_no_list_holds_is_refused() -> None:
    with pytest.raises(WireError, match="chunks"):
        fitting_chunk_bytes(MAX_CHUNKS * 131072 + 1)
    with pytest.raises(WireError, match="chunks"):
        make_chunk_list(bytes(MAX_CHUNKS * 16384 + 1), 16384)
