"""Newer orders, crashes, damaged files, blobs that do not come."""

import threading
import time
from pathlib import Path

import pytest

from edge_agent.link.download import MAX_BLOB_BYTES
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.orders import OrderFailed
from edge_agent.training.job import TrainingJob
from edge_agent.wire.blobs import BlobReference, make_reference, sha256_hex
from edge_agent.wire.messages import (
    BlobMissingEvent,
    TrainResult,
)
from server_bridge.demo.broker import Mosquitto
from tests.link.peers import Publisher
from tests.runtime.desk import wait
from tests.runtime.local_work_bench import BASE, ENDLESS, LONG_S, Bench, train_action


def test_a_newer_order_kills_the_worker_and_its_files_do_not_pile_up(bench: Bench) -> None:
    newer = threading.Event()
    threading.Timer(0.6, newer.set).start()
    began_s = time.monotonic()
    assert bench.refusal(epochs=ENDLESS, batch_size=1, ended=newer.is_set).reason == "superseded"
    assert time.monotonic() - began_s < LONG_S / 2
    assert not bench.supervisor.busy
    bench.train("c2")
    assert bench.jobs() == 1
    bench.work.forget("c2")
    assert bench.jobs() == 0


def test_a_result_from_before_a_crash_is_handed_on_without_training_again(bench: Bench, bundle: Bundle) -> None:
    base = bench.hold()
    path = bench.blobs.path(base.digest)
    assert path is not None
    action = train_action(bundle, base)
    job = TrainingJob(
        command_id="c1",
        duration_s=LONG_S,
        bundle_dir=bundle.path,
        bundle=bundle.digest,
        weights_file=path,
        weights=base.digest,
        samples_db=bench.samples_db,
        **action.model_dump(
            include={
                "max_samples",
                "training_graph",
                "learning_rate",
                "epochs",
                "batch_size",
                "min_samples",
                "seed",
                "coding",
            }
        ),
    )
    bench.supervisor.start(job)
    wait(lambda: bench.supervisor.poll() is not None, "the worker")
    again = Bench(bench.path, bundle, bench.path / "samples-that-a-worker-would-miss.db")
    result = again.train(base=base)
    assert again.uploader.offered() == ["c1"]
    assert result.update.base == base.digest
    again.close()


def test_a_result_is_held_until_its_reply_is_stored(bench: Bench, bundle: Bundle) -> None:
    base = bench.hold()
    first = bench.train(base=base)
    again = Bench(bench.path, bundle, bench.path / "samples-that-a-worker-would-miss.db")
    assert again.train(base=base) == first
    again.work.forget("c1")
    with pytest.raises(OrderFailed):
        again.train(base=base)
    again.close()


def test_a_result_that_the_disk_damaged_is_worked_out_again(bench: Bench) -> None:
    first = bench.train()
    (result,) = (bench.path / "work").glob("*/result.json")
    result.write_bytes(bytes(result.stat().st_size))
    assert bench.train().update == first.update


def test_a_base_that_the_disk_damaged_is_fetched_anew(
    mosquitto: Mosquitto, tmp_path: Path, bundle: Bundle, samples_db: Path
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, port=mosquitto.port)
    base = bench.hold()
    path = bench.blobs.path(base.digest)
    assert path is not None
    path.write_bytes(BASE[:100] + bytes(len(BASE) - 100))
    bridge = Publisher(mosquitto.port)
    wait(lambda: bridge.session.connected, "the bridge")
    reference = bridge.blob(BASE)
    assert bench.train(base=reference).update.base == base.digest
    assert path.read_bytes() == BASE
    bridge.close()
    bench.close()


def test_weights_of_earlier_orders_are_forgotten(bench: Bench) -> None:
    bench.hold(b"of an earlier round")
    bench.train()
    assert list(bench.blobs.digests()) == [sha256_hex(BASE)]


def test_an_impossible_blob_fails_the_order_at_once(bench: Bench) -> None:
    huge = BlobReference(digest="d" * 64, length=MAX_BLOB_BYTES + 1, chunk_list="e" * 64)
    began_s = time.monotonic()
    assert bench.refusal(base=huge).reason == "too-large"
    assert time.monotonic() - began_s < LONG_S / 2


def test_an_absent_broker_is_waited_for_and_no_blob_is_reported_missing(bench: Bench) -> None:
    refused = bench.refusal(base=make_reference(BASE)[0], within_s=1.2)
    assert refused.reason == "too-late"
    assert bench.events() == []


def test_a_silent_blob_is_reported_and_the_order_goes_on_when_it_is_there(
    mosquitto: Mosquitto, tmp_path: Path, bundle: Bundle, samples_db: Path
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, port=mosquitto.port)
    bridge = Publisher(mosquitto.port)
    wait(lambda: bridge.session.connected, "the bridge")
    reference = make_reference(BASE, 16384)[0]
    results: list[TrainResult] = []
    thread = threading.Thread(target=lambda: results.append(bench.train(base=reference)))
    thread.start()
    wait(lambda: bench.outbox.depth >= 1, "the report")
    missing = bench.events()[0]
    assert isinstance(missing, BlobMissingEvent)
    assert missing.blob == reference
    assert bridge.blob(BASE) == reference
    thread.join(LONG_S)
    assert [result.update.base for result in results] == [reference.digest]
    bridge.close()
    bench.close()


def test_a_newer_order_ends_the_wait_for_a_silent_blob(
    mosquitto: Mosquitto, tmp_path: Path, bundle: Bundle, samples_db: Path
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, port=mosquitto.port)
    newer = threading.Event()
    threading.Timer(0.3, newer.set).start()
    began_s = time.monotonic()
    assert bench.refusal(base=make_reference(BASE)[0], ended=newer.is_set).reason == "superseded"
    assert time.monotonic() - began_s < LONG_S / 2
    bench.close()
