import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import BlobUnavailable, Downloader
from edge_agent.link.patience import Patience
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import BlobReference, chunks, make_reference, sha256_hex
from server_bridge.demo.broker import Mosquitto
from tests.link.peers import TOPICS, Publisher

DATA = random.Random(1).randbytes(40 * 16384 + 5)
SILENCE_S = 0.8
"""Thrice as long a busy machine does not make a broker wait."""
WAIT_S = 60.0


@pytest.fixture
def publisher(mosquitto: Mosquitto) -> Iterator[Publisher]:
    made = Publisher(mosquitto.port)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def _downloader(port: int, store: BlobStore, silence_s: float = 10.0) -> Downloader:
    return Downloader(BrokerSettings("127.0.0.1", port), "gw1.down", TOPICS, store, silence_s=silence_s)


def test_a_blob_is_fetched_and_verified(mosquitto: Mosquitto, publisher: Publisher, store: BlobStore) -> None:
    reference = publisher.blob(DATA)
    path = _downloader(mosquitto.port, store).fetch(reference, timeout_s=WAIT_S)
    assert path.read_bytes() == DATA
    assert store.path(reference.digest) == path


def test_a_blob_already_held_needs_no_broker(store: BlobStore) -> None:
    reference, _ = make_reference(b"held")
    store.put(b"held")
    assert _downloader(1, store).fetch(reference, timeout_s=1).read_bytes() == b"held"


def test_an_empty_blob_needs_no_broker(store: BlobStore) -> None:
    reference, _ = make_reference(b"")
    assert _downloader(1, store).fetch(reference, timeout_s=1).read_bytes() == b""


def test_an_empty_blob_with_another_digest_is_damaged(store: BlobStore) -> None:
    reference = BlobReference(digest="0" * 64, length=0, chunk_list="0" * 64)
    with pytest.raises(BlobUnavailable, match="damaged"):
        _downloader(1, store).fetch(reference, timeout_s=1)


def test_a_blob_over_the_cap_is_refused_before_anything_is_asked(store: BlobStore) -> None:
    reference = BlobReference(digest="0" * 64, length=2**40, chunk_list="0" * 64)
    with pytest.raises(BlobUnavailable, match="too-large"):
        _downloader(1, store).fetch(reference, timeout_s=1)


def test_an_unknown_blob_is_silent(mosquitto: Mosquitto, store: BlobStore) -> None:
    reference, _ = make_reference(b"never published")
    with pytest.raises(BlobUnavailable) as caught:
        _downloader(mosquitto.port, store, silence_s=0.1).fetch(reference, timeout_s=WAIT_S)
    assert caught.value.reason == "silent"


def test_a_missing_chunk_is_asked_for_again_and_the_rest_is_kept(
    mosquitto: Mosquitto, publisher: Publisher, store: BlobStore
) -> None:
    reference = publisher.blob(DATA, without=(3, 17))
    downloader = _downloader(mosquitto.port, store, SILENCE_S)
    began_s = time.monotonic()
    with pytest.raises(BlobUnavailable, match="2 chunks did not come, asked 3x"):
        downloader.fetch(reference, timeout_s=WAIT_S)
    assert time.monotonic() - began_s > 3 * SILENCE_S
    for index in (3, 17):
        publisher.retain(TOPICS.chunk(reference.digest, index), DATA[index * 16384 : (index + 1) * 16384])
    assert downloader.fetch(reference, timeout_s=WAIT_S).read_bytes() == DATA


def test_a_chunk_published_during_a_retry_is_taken(
    mosquitto: Mosquitto, publisher: Publisher, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = publisher.blob(DATA, without=(40,))
    try_again, retries = Patience.try_again, 0

    def published_meanwhile(patience: Patience, now_s: float) -> bool:
        nonlocal retries
        retries += 1
        publisher.retain(TOPICS.chunk(reference.digest, 40), DATA[40 * 16384 :])
        return try_again(patience, now_s)

    monkeypatch.setattr(Patience, "try_again", published_meanwhile)
    fetched = _downloader(mosquitto.port, store, SILENCE_S).fetch(reference, timeout_s=WAIT_S)
    assert fetched.read_bytes() == DATA
    assert retries > 0


def test_a_fetch_is_resumed_after_a_restart(mosquitto: Mosquitto, publisher: Publisher, tmp_path: Path) -> None:
    reference = publisher.blob(DATA, without=(0,))
    with pytest.raises(BlobUnavailable):
        _downloader(mosquitto.port, BlobStore(tmp_path), SILENCE_S).fetch(reference, timeout_s=WAIT_S)
    for index in range(1, 41):
        publisher.retain(TOPICS.chunk(reference.digest, index), b"")
    publisher.retain(TOPICS.chunk(reference.chunk_list, 0), b"")
    publisher.retain(TOPICS.chunk(reference.digest, 0), DATA[:16384])
    path = _downloader(mosquitto.port, BlobStore(tmp_path)).fetch(reference, timeout_s=WAIT_S)
    assert path.read_bytes() == DATA


def test_a_corrupt_chunk_is_ignored_and_counted(mosquitto: Mosquitto, publisher: Publisher, store: BlobStore) -> None:
    reference = publisher.blob(DATA)
    publisher.retain(TOPICS.chunk(reference.digest, 5), b"corrupt")
    downloader = _downloader(mosquitto.port, store, SILENCE_S)
    with pytest.raises(BlobUnavailable, match="silent"):
        downloader.fetch(reference, timeout_s=WAIT_S)
    assert downloader.corrupt_chunks == 3
    publisher.retain(TOPICS.chunk(reference.digest, 5), DATA[5 * 16384 : 6 * 16384])
    assert downloader.fetch(reference, timeout_s=WAIT_S).read_bytes() == DATA


def test_a_forged_chunk_list_is_ignored_and_counted(
    mosquitto: Mosquitto, publisher: Publisher, store: BlobStore
) -> None:
    reference = publisher.blob(DATA)
    publisher.retain(TOPICS.chunk(reference.chunk_list, 0), b"{}")
    downloader = _downloader(mosquitto.port, store, SILENCE_S)
    with pytest.raises(BlobUnavailable, match="silent"):
        downloader.fetch(reference, timeout_s=WAIT_S)
    assert downloader.corrupt_chunks == 3


def test_right_chunks_of_a_wrong_whole_are_damaged(
    mosquitto: Mosquitto, publisher: Publisher, store: BlobStore
) -> None:
    right = publisher.blob(DATA)
    wrong = right.model_copy(update={"digest": sha256_hex(b"something else")})
    for index, chunk in enumerate(chunks(DATA, 16384)):
        publisher.retain(TOPICS.chunk(wrong.digest, index), chunk)
    with pytest.raises(BlobUnavailable, match="damaged"):
        _downloader(mosquitto.port, store).fetch(wrong, timeout_s=WAIT_S)
    assert store.digests() == []


def test_a_withdrawn_blob_is_told_at_once(mosquitto: Mosquitto, publisher: Publisher, store: BlobStore) -> None:
    reference = publisher.blob(DATA, without=(7,))
    withdrawal = threading.Timer(0.5, publisher.retain, (TOPICS.chunk(reference.digest, 7), b""))
    withdrawal.start()
    began_s = time.monotonic()
    with pytest.raises(BlobUnavailable) as caught:
        _downloader(mosquitto.port, store, silence_s=30).fetch(reference, timeout_s=WAIT_S)
    assert caught.value.reason == "withdrawn"
    assert time.monotonic() - began_s < 15, "half of the silence that it would have borne"
    withdrawal.join()


def test_a_fetch_can_be_cancelled(mosquitto: Mosquitto, publisher: Publisher, store: BlobStore) -> None:
    reference = publisher.blob(DATA, without=(7,))
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(BlobUnavailable) as caught:
        _downloader(mosquitto.port, store, silence_s=30).fetch(reference, timeout_s=WAIT_S, cancelled=cancel.is_set)
    assert caught.value.reason == "cancelled"


def test_a_fetch_ends_at_its_timeout_without_a_broker(store: BlobStore) -> None:
    reference, _ = make_reference(b"x")
    began_s = time.monotonic()
    with pytest.raises(BlobUnavailable, match="timeout"):
        _downloader(1, store).fetch(reference, timeout_s=0.5)
    assert time.monotonic() - began_s < 15


def test_a_broker_that_restarts_meanwhile_is_waited_for(
    mosquitto: Mosquitto, publisher: Publisher, store: BlobStore
) -> None:
    reference = publisher.blob(DATA, without=(40,))
    results: list[Path] = []
    downloader = _downloader(mosquitto.port, store)
    fetching = threading.Thread(target=lambda: results.append(downloader.fetch(reference, timeout_s=WAIT_S)))
    fetching.start()
    time.sleep(0.4)
    mosquitto.restart()
    publisher.retain(TOPICS.chunk(reference.digest, 40), DATA[40 * 16384 :])
    fetching.join(WAIT_S)
    assert results
    assert results[0].read_bytes() == DATA


def test_many_fetches_share_the_client(mosquitto: Mosquitto, publisher: Publisher, store: BlobStore) -> None:
    blobs = [DATA[: number * 30_000 + 1] for number in range(4)]
    references = [publisher.blob(blob) for blob in blobs]
    silent, _ = make_reference(b"never published")
    downloader = _downloader(mosquitto.port, store, SILENCE_S)
    results: dict[int, bytes] = {}
    failures: list[str] = []

    def fetch(number: int) -> None:
        results[number] = downloader.fetch(references[number % 4], timeout_s=WAIT_S).read_bytes()

    def fail() -> None:
        try:
            downloader.fetch(silent, timeout_s=WAIT_S)
        except BlobUnavailable as error:
            failures.append(error.reason)

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(8)]
    threads.append(threading.Thread(target=fail))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [results[number] for number in range(8)] == blobs * 2
    assert failures == ["silent"]
    assert "session taken over" not in mosquitto.log_end(5000)
    assert not [thread for thread in threading.enumerate() if "gw1.down" in thread.name and thread.name[:4] == "mqtt"]


def test_patience_grows_with_the_usual_time_between_chunks() -> None:
    patience = Patience(10.0, 0.0, random.Random(1))
    assert not patience.is_over(9.9)
    assert patience.is_over(10.1)
    now_s = 0.0
    for _ in range(50):
        now_s += 5.0
        patience.arrived(now_s)
    assert not patience.is_over(now_s + 19)
    assert patience.is_over(now_s + 21)
    assert patience.try_again(now_s)
    assert patience.try_again(now_s)
    assert not patience.try_again(now_s)
