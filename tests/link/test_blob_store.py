import os
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.blob_store import PARTS_KEPT, BlobStore
from edge_agent.link.durable import FileOperations
from edge_agent.wire.blobs import BlobReference, ChunkList, chunks, make_reference, read_chunk_list
from tests.link.test_durable import FailingDisk, PowerCut

DATA = bytes(range(256)) * 400  # 102,400 bytes: 7 chunks of 16 KiB, the last one short
SHORT = DATA[: 2 * 16384 + 7]


def _reference(data: bytes) -> tuple[BlobReference, ChunkList, bytes]:
    reference, encoded = make_reference(data, 16384)
    return reference, read_chunk_list(encoded, reference), encoded


def test_put_and_read(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"data")
    assert store.put(b"data") == digest
    assert store.path(digest) == tmp_path / digest
    assert store.read(digest) == b"data"
    assert store.digests() == [digest]
    assert store.total_bytes == 4
    assert store.remove(digest)
    assert not store.remove(digest)
    assert store.path(digest) is None
    with pytest.raises(StorageError):
        store.read(digest)


def test_a_blob_damaged_on_disk_is_removed(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"data")
    (tmp_path / digest).write_bytes(b"dada")
    with pytest.raises(StorageError, match="damaged on disk"):
        store.read(digest)
    assert store.path(digest) is None


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "a" * 63])
def test_only_digests_name_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="no SHA-256"):
        BlobStore(tmp_path).path(name)


def test_a_part_is_resumed_with_what_was_synced(tmp_path: Path) -> None:
    reference, chunk_list, encoded = _reference(DATA)
    pieces = list(chunks(DATA, 16384))
    part = BlobStore(tmp_path).begin(reference, chunk_list, encoded)
    part.write(0, pieces[0])
    part.write(6, pieces[6])
    part.sync()
    part.write(3, pieces[3])
    part.close()
    store = BlobStore(tmp_path)
    assert store.known_chunk_list(reference) == (chunk_list, encoded)
    part = store.begin(reference, chunk_list, encoded)
    assert part.missing == [1, 2, 3, 4, 5]
    for index in part.missing:
        part.write(index, pieces[index])
    path = store.finish(part)
    assert path is not None
    assert path.read_bytes() == DATA
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_bitmap_that_lies_is_not_believed(tmp_path: Path) -> None:
    reference, chunk_list, encoded = _reference(DATA)
    store = BlobStore(tmp_path)
    part = store.begin(reference, chunk_list, encoded)
    part.write(0, DATA[:16384])
    part.sync()
    part.close()
    (tmp_path / "parts" / f"{reference.digest}.bits").write_bytes(b"\x01" * 100)
    part = store.begin(reference, chunk_list, encoded)
    assert part.missing == [1, 2, 3, 4, 5, 6]
    part.close()


def test_damaged_traces_of_a_part_begin_it_anew(tmp_path: Path) -> None:
    reference, chunk_list, encoded = _reference(DATA)
    store = BlobStore(tmp_path)
    part = store.begin(reference, chunk_list, encoded)
    part.write(0, DATA[:16384])
    part.sync()
    part.close()
    (tmp_path / "parts" / f"{reference.digest}.list").write_bytes(b"\0" * 50)
    assert store.known_chunk_list(reference) is None
    part = store.begin(reference, chunk_list, encoded)
    assert len(part.missing) == 7
    part.close()


def test_chunks_that_do_not_make_the_blob_leave_nothing(tmp_path: Path) -> None:
    reference, _, _ = _reference(DATA)
    _, other_list, other_encoded = _reference(b"other" + DATA[5:])
    store = BlobStore(tmp_path)
    part = store.begin(reference, other_list, other_encoded)
    for index, chunk in enumerate(chunks(b"other" + DATA[5:], 16384)):
        part.write(index, chunk)
    assert store.finish(part) is None
    assert store.digests() == []
    assert list((tmp_path / "parts").iterdir()) == []


def test_old_parts_do_not_pile_up(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    for number in range(10):
        part = store.begin(*_reference(DATA + bytes([number])))
        part.close()
        for path in (tmp_path / "parts").glob(f"{part.digest}*"):
            os.utime(path, (number, number))
    assert len(list((tmp_path / "parts").glob("*.list"))) == PARTS_KEPT


def _fetch(directory: Path, files: FileOperations) -> None:
    reference, chunk_list, encoded = _reference(SHORT)
    store = BlobStore(directory, files=files)
    part = store.begin(reference, chunk_list, encoded)
    for index in part.missing:
        part.write(index, SHORT[index * 16384 : (index + 1) * 16384])
        part.sync()
    assert store.finish(part) is not None


@pytest.mark.parametrize("fault", [OSError, PowerCut])
def test_a_fetch_goes_on_whichever_disk_step_fails(tmp_path: Path, fault: type[BaseException]) -> None:
    counting = FailingDisk(-1, OSError)
    _fetch(tmp_path / "count", counting)
    for step in range(1, counting.steps + 1):
        directory = tmp_path / str(step)
        disk = FailingDisk(step, fault)
        with pytest.raises(StorageError if fault is OSError else PowerCut):
            _fetch(directory, disk)
        disk.lose_unsynced(directory)
        store = BlobStore(directory)
        for digest in store.digests():
            assert store.read(digest) == SHORT
        _fetch(directory, FailingDisk(-1, OSError))
        assert (directory / _reference(SHORT)[0].digest).read_bytes() == SHORT
