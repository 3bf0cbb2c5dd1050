import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link import offers, upload
from edge_agent.link.offers import Offer, OfferBook
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.wire.blobs import check_chunk, chunks, make_chunk_list, sha256_hex
from edge_agent.wire.messages import ChunkGrant
from edge_agent.wire.topics import parse_topic
from server_bridge.demo.broker import Mosquitto, free_port
from tests.link.peers import TOPICS, WAIT_S, Publisher

DATA = random.Random(2).randbytes(10 * 16384 + 9)
LIST = make_chunk_list(DATA, 16384)
DIGEST = sha256_hex(DATA)


def _offer(command_id: str = "c1", data: bytes = DATA) -> Offer:
    return Offer(command_id=command_id, digest=sha256_hex(data), chunks=make_chunk_list(data, 16384))


def _grant(*indices: int, command_id: str = "c1", digest: str = DIGEST) -> ChunkGrant:
    return ChunkGrant(command_id=command_id, digest=digest, indices=list(indices))


def _wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.fixture
def bridge(mosquitto: Mosquitto) -> Iterator[Publisher]:
    made = Publisher(mosquitto.port, "clma/1/+/up/#")
    _wait(lambda: made.session.connected)
    yield made
    made.close()


@pytest.fixture
def uploader(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Uploader]:
    made = _uploader(mosquitto.port, tmp_path)
    made.start()
    yield made
    made.stop(5)
    assert made.failure is None


def _uploader(port: int, tmp_path: Path) -> Uploader:
    return Uploader(BrokerSettings("127.0.0.1", port), "gw1.up", TOPICS, "gw1", tmp_path / "offers")


def _heard(bridge: Publisher, count: int) -> dict[int, bytes]:
    heard = {}
    for message in bridge.hear(count):
        topic = parse_topic(message.topic)
        assert (topic.gateway, topic.digest) == ("gw1", DIGEST)
        assert topic.index is not None
        check_chunk(message.payload, topic.index, LIST)
        heard[topic.index] = message.payload
    return heard


def test_exactly_the_granted_chunks_are_sent(bridge: Publisher, uploader: Uploader) -> None:
    uploader.offer("c1", DATA, LIST)
    uploader.grant(_grant(3, 10))
    assert set(_heard(bridge, 2)) == {3, 10}
    time.sleep(0.3)
    with pytest.raises(AssertionError, match="heard 0"):
        bridge.hear(1, timeout_s=0.1)
    uploader.grant(_grant(0, 1, 2, 4, 5, 6, 7, 8))
    uploader.grant(_grant(9))
    assert set(_heard(bridge, 9)) == {0, 1, 2, 4, 5, 6, 7, 8, 9}


def test_a_chunk_granted_again_is_sent_again(bridge: Publisher, uploader: Uploader) -> None:
    uploader.offer("c1", DATA, LIST)
    for _ in range(2):
        uploader.grant(_grant(3))
        assert set(_heard(bridge, 1)) == {3}
        # the broker's answer has come: it is no longer on its way
        _wait(lambda: not uploader._work.is_set() and not uploader._sending)


def test_an_empty_grant_ends_the_offer(uploader: Uploader, tmp_path: Path) -> None:
    uploader.offer("c1", DATA, LIST)
    uploader.grant(_grant())
    _wait(lambda: uploader.offered() == [])
    assert list((tmp_path / "offers").iterdir()) == []


@pytest.mark.parametrize(
    "grant", [_grant(0, command_id="other"), _grant(0, digest="0" * 64), _grant(11)], ids=["command", "digest", "index"]
)
def test_a_grant_for_nothing_held_is_counted(uploader: Uploader, bridge: Publisher, grant: ChunkGrant) -> None:
    uploader.offer("c1", DATA, LIST)
    uploader.grant(grant)
    assert uploader.refused_grants == 1
    with pytest.raises(AssertionError, match="heard 0"):
        bridge.hear(1, timeout_s=0.3)


def test_offers_survive_a_restart(bridge: Publisher, mosquitto: Mosquitto, tmp_path: Path) -> None:
    _uploader(mosquitto.port, tmp_path).offer("c1", DATA, LIST)
    again = _uploader(mosquitto.port, tmp_path)
    assert again.offered() == ["c1"]
    again.start()
    again.grant(_grant(*range(8)))
    assert set(_heard(bridge, 8)) == set(range(8))
    again.stop(5)


def test_a_broker_that_comes_later_gets_what_was_granted(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "broker", port=free_port())
    late = _uploader(broker.port, tmp_path)
    late.start()
    late.offer("c1", DATA, LIST)
    for first in (0, 8):
        late.grant(_grant(*range(first, min(first + 8, 11))))
    broker.start()
    try:
        bridge = Publisher(broker.port, "clma/1/+/up/#")
        _wait(lambda: bridge.session.connected)
        late.grant(_grant(*range(8)))
        late.grant(_grant(8, 9, 10))
        heard: set[int] = set()
        while heard != set(range(11)):
            heard |= set(_heard(bridge, 1))
        bridge.close()
    finally:
        late.stop(5)
        broker.kill()


def test_the_client_leaves_when_there_is_nothing_to_send(
    bridge: Publisher, uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "LINGER_S", 0.1)
    uploader.offer("c1", DATA, LIST)
    uploader.grant(_grant(0))
    _heard(bridge, 1)
    _wait(lambda: not [one for one in threading.enumerate() if one.name == "mqtt-gw1.up"])
    uploader.grant(_grant(1))
    assert set(_heard(bridge, 1)) == {1}


def test_a_book_keeps_the_newest_offers(tmp_path: Path) -> None:
    book = OfferBook(tmp_path)
    for number in range(7):
        book.hold(_offer(f"c{number}", DATA + bytes([number])), DATA + bytes([number]))
    assert book.command_ids() == ["c3", "c4", "c5", "c6"]
    assert len(list(tmp_path.iterdir())) == offers.MAX_OFFERS


def test_an_offer_made_again_replaces_the_first(tmp_path: Path) -> None:
    book = OfferBook(tmp_path)
    for data in (DATA, DATA, b"other"):
        book.hold(_offer("c1", data), data)
    assert book.chunk("c1", 0) == b"other"
    assert OfferBook(tmp_path).chunk("c1", 0) == b"other"


def test_every_chunk_can_be_read(tmp_path: Path) -> None:
    book = OfferBook(tmp_path)
    book.hold(_offer(), DATA)
    assert [book.chunk("c1", index) for index in range(11)] == list(chunks(DATA, 16384))
    assert book.chunk("unknown", 0) is None


def test_a_chunk_damaged_on_disk_is_not_sent(tmp_path: Path) -> None:
    book = OfferBook(tmp_path)
    book.hold(_offer(), DATA)
    (path,) = tmp_path.glob("*/update")
    path.write_bytes(bytes(len(DATA)))
    with pytest.raises(StorageError, match="digest of chunk 0 differs"):
        book.chunk("c1", 0)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"{}"])
def test_a_damaged_offer_is_removed_at_start(tmp_path: Path, damage: bytes) -> None:
    OfferBook(tmp_path).hold(_offer(), DATA)
    (path,) = tmp_path.glob("*/offer.json")
    path.write_bytes(damage)
    assert OfferBook(tmp_path).command_ids() == []
    assert list(tmp_path.iterdir()) == []
