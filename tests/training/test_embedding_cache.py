import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import StorageError
from edge_agent.training.embedding_cache import CachedRows, EmbeddingCache

KEY = "k" * 64


def rows(count: int, width: int = 3, seed: int = 0) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_rows_come_back_by_sample_to_the_last_bit(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "cache")
    cache.write(KEY, ["a", "ü", "c"], rows(3))
    found = EmbeddingCache(tmp_path / "cache").read(KEY, [3])
    assert found.place == {"a": 0, "ü": 1, "c": 2}
    assert found.rows is not None
    assert found.rows.tobytes() == rows(3).tobytes()


def test_another_key_or_shape_has_nothing(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "cache")
    cache.write(KEY, ["a"], rows(1))
    assert cache.read("other", [3]) == CachedRows()
    assert cache.read(KEY, [4]) == CachedRows()
    assert cache.read(KEY, [3, 1]) == CachedRows()


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    cache = EmbeddingCache(None)
    cache.write(KEY, ["a"], rows(1))
    assert cache.read(KEY, [3]) == CachedRows()
    assert EmbeddingCache(tmp_path / "absent").read(KEY, [3]) == CachedRows()
    EmbeddingCache(tmp_path / "absent").write(KEY, [], rows(0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cap_bytes", [10, 200, 1000, 10_000])
def test_the_file_is_bounded_and_keeps_the_newest(tmp_path: Path, cap_bytes: int) -> None:
    cache = EmbeddingCache(tmp_path / "cache", cap_bytes=cap_bytes)
    ids = [f"s{number}" for number in range(200)]
    cache.write(KEY, ids, rows(200))
    found = cache.read(KEY, [3])
    assert not (tmp_path / "cache").exists() or (tmp_path / "cache").stat().st_size <= cap_bytes
    kept = list(found.place)
    assert kept == ids[len(ids) - len(kept) :]
    assert len(kept) > 10 or cap_bytes < 1000
    if found.rows is not None:
        assert found.rows.tobytes() == rows(200)[len(ids) - len(kept) :].tobytes()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_damaged_counts_as_empty(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cache") / "cache"
    cache = EmbeddingCache(path)
    cache.write(KEY, ["a", "b"], rows(2))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "zero", "more"]))
    damaged = {
        "flip": whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :],
        "cut": whole[:at],
        "zero": bytes(len(whole)),
        "more": whole + b"\0",
    }[how]
    path.write_bytes(damaged)
    assert cache.read(KEY, [3]) == CachedRows()
    cache.write(KEY, ["a", "b"], rows(2))
    assert set(cache.read(KEY, [3]).place) == {"a", "b"}


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        EmbeddingCache(tmp_path / "folder").write(KEY, ["a"], rows(1))
    assert EmbeddingCache(tmp_path / "folder").read(KEY, [3]) == CachedRows()


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"aaaa", b""),
        (b"[]", b""),
        (b"{}", b""),
        (json.dumps({"key": KEY, "shape": [3], "ids": "abc"}).encode(), bytes(36)),
        (json.dumps({"key": KEY, "shape": [3], "ids": ["a", "b"]}).encode(), bytes(12)),
        (json.dumps({"key": KEY, "shape": [3], "ids": ["a"]}).encode(), bytes(24)),
    ],
)
def test_a_whole_file_of_another_make_counts_as_empty(tmp_path: Path, header: bytes, body: bytes) -> None:
    payload = len(header).to_bytes(8, "little") + header + body
    (tmp_path / "cache").write_bytes(sha256(payload).digest() + payload)
    assert EmbeddingCache(tmp_path / "cache").read(KEY, [3]) == CachedRows()


def test_rows_that_are_not_finite_are_computed_again(tmp_path: Path) -> None:
    spoilt = rows(3)
    spoilt[1, 2] = np.nan
    cache = EmbeddingCache(tmp_path / "cache")
    cache.write(KEY, ["a", "b", "c"], spoilt)
    assert cache.read(KEY, [3]).place == {"a": 0, "c": 2}
