"""Blobs over a slow link: every chunk crosses it once, however long it takes."""

import queue
import time
from pathlib import Path

import pytest

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import Downloader
from edge_agent.link.events import Received
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.wire.blobs import make_chunk_list, sha256_hex
from edge_agent.wire.messages import ChunkGrant
from tests.broker import Mosquitto
from tests.link.peers import TOPICS, Publisher
from tests.link_faults.proxy import LinkFault, LinkProxy

pytestmark = pytest.mark.long

# A chunk takes four seconds: twice the silence, which no busy machine makes by itself.
SLOW = LinkFault(rate_bytes_s=4096.0)
SILENCE_S = 2.0
SIZE_BYTES = 2 * 16384
OVERHEAD = 1.15


def _data() -> bytes:
    return bytes(range(256)) * (SIZE_BYTES // 256)


def test_a_chunk_that_takes_longer_than_silence_is_not_asked_for_again(tmp_path: Path, mosquitto: Mosquitto) -> None:
    publisher = Publisher(mosquitto.port)
    reference = publisher.blob(_data())
    with LinkProxy(mosquitto.port, SLOW) as link:
        store = BlobStore(tmp_path / "blobs")
        downloader = Downloader(BrokerSettings("127.0.0.1", link.port), "gw1.down", TOPICS, store, silence_s=SILENCE_S)
        assert downloader.fetch(reference, timeout_s=60.0).read_bytes() == _data()
        assert link.bytes_down < OVERHEAD * SIZE_BYTES
    publisher.close()


def test_a_chunk_on_its_way_is_not_sent_again_however_often_it_is_granted(tmp_path: Path, mosquitto: Mosquitto) -> None:
    data = _data()
    listed = make_chunk_list(data, 16384)
    bridge = Publisher(mosquitto.port, TOPICS.up_filter)
    with LinkProxy(mosquitto.port, SLOW) as link:
        uploader = Uploader(BrokerSettings("127.0.0.1", link.port), "gw1.up", TOPICS, "gw1", tmp_path / "updates")
        uploader.offer("c1", data, listed)
        uploader.start()
        missing = {TOPICS.upload_chunk("gw1", sha256_hex(data), index): index for index in range(len(listed.digests))}
        until_s = time.monotonic() + 60.0
        while missing and time.monotonic() < until_s:
            uploader.grant(ChunkGrant(command_id="c1", digest=sha256_hex(data), indices=sorted(missing.values())))
            for topic in _heard_within(bridge, 0.8):
                missing.pop(topic, None)
        time.sleep(1.0)
        uploader.stop(3.0)
        assert not missing
        assert link.bytes_up < OVERHEAD * SIZE_BYTES
    bridge.close()


def _heard_within(bridge: Publisher, wait_s: float) -> list[str]:
    until_s = time.monotonic() + wait_s
    topics = []
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            event = bridge.inbox.get(timeout=left_s)
        except queue.Empty:
            break
        if isinstance(event, Received):
            topics.append(event.topic)
    return topics
