"""A power cut at every durable step of flagging, training, handing on and fetching."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.database import open_database
from edge_agent.link.download import Downloader
from edge_agent.link.durable import write_file
from edge_agent.link.outbox import Outbox
from edge_agent.link.part_file import SYNC_EVERY_CHUNKS
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.model.bundle import Bundle
from edge_agent.ota.command_keys import verify_signature
from edge_agent.runtime.local_work import LocalWork, OperatorLimits
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.orders import Orders
from edge_agent.runtime.training_orders import lineage
from edge_agent.runtime.watch_standing import StandingTable
from edge_agent.training import supervisor, worker
from edge_agent.training.job import JOB_FILE, RESULT_FILE, WorkerLimits
from edge_agent.training.progress import ProgressPipe
from edge_agent.training.residual import Residuals, decode_residual
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.blobs import chunks, make_chunk_list, make_reference, sha256_hex
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.messages import Reply, Train, TrainResult
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES
from edge_agent.wire.tensors import encode_weights
from tests.link.peers import TOPICS
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.runtime.bench import BATCH, Parts
from tests.runtime.desk import FLEET, GATEWAY, TRAIN, HeardSession, Signer
from tests.runtime.watched import OWN, SIZE, drawn, labelled, labels_of, rules_of, served_of, watched_bundle
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import tiny_weights

BASE = encode_weights(tiny_weights(3))
LOW, HIGH = [False] * BATCH, [True] * BATCH
STREAM = [LOW, LOW, HIGH, HIGH, LOW, LOW, LOW, HIGH, HIGH]
FLAGS = 2
MOVED = [0.0] * 2 + [5.0] * 5


def test_every_flag_is_raised_once_whichever_step_of_recording_and_judging_fails(
    tmp_path: Path, bundle: Bundle
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    Parts(template, bundle).close()

    def act(path: Path, k: int) -> Power:
        shutil.copytree(template, path)
        parts = Parts(path, bundle)
        with until_the_cut(k, path) as power:
            _feed(parts, 0)
        parts.close()
        again = Parts(path, bundle)
        again.store.resume_after(again.watch.cursor)
        _feed(again, _labelled(again) // BATCH)
        again.watch.consume([], again.active)
        assert [flag.firing for flag in again.flags()] == list(range(1, FLAGS + 1))
        assert [flag.first_drifted_sample for flag in again.flags()] == ["s8", "s28"]
        assert len({flag.flag_id for flag in again.flags()}) == FLAGS
        assert again.watch.cursor == len(STREAM) * BATCH
        again.close()
        shutil.rmtree(path)
        return power

    assert at_every_step(act, tmp_path) > len(STREAM)


def test_every_monitors_state_is_what_was_committed_whichever_step_fails(tmp_path: Path, bundle: Bundle) -> None:
    """Labels judged once each, samples at most once; no state without its flag, no flag twice."""
    watched = watched_bundle(bundle)
    rules = rules_of(watched, label_free="always", calm_batches=2, cooldown_batches=0)
    template = tmp_path / "template"
    template.mkdir()
    first = Parts(template, watched, rules=rules)
    first.activate(OWN, 1)
    first.watch.consume([], first.active)
    first.close()

    def act(path: Path, k: int) -> Power:
        shutil.copytree(template, path)
        parts = Parts(path, watched, rules=rules)
        parts.activate(OWN, 1)
        with until_the_cut(k, path) as power:
            for number in range(len(MOVED)):
                _serve(parts, watched, number)
        committed = _states(parts)
        parts.close()
        again = Parts(path, watched, rules=rules)
        again.activate(OWN, 1)
        assert _states(again) == committed
        again.store.resume_after(again.watch.cursor)
        done = _labelled(again) // SIZE
        again.watch.consume([], again.active)
        for number in range(done, len(MOVED)):
            _serve(again, watched, number)
        at, flags = again.watch.standing, again.flags()
        assert at.batches["loss-level"] == len(MOVED)
        assert len(MOVED) - 2 <= at.batches["label-free"] <= len(MOVED)
        assert [flag.firing for flag in flags] == list(range(1, at.policy.flags + 1))
        assert len({flag.flag_id for flag in flags}) == len(flags)
        assert flags, "the shift lasts longer than what a cut may cost"
        again.close()
        shutil.rmtree(path)
        return power

    assert at_every_step(act, tmp_path) > 2 * len(MOVED)


def _serve(parts: Parts, bundle: Bundle, number: int) -> None:
    x, outputs = drawn(SIZE, number, moved=MOVED[number])
    batch, made = served_of(bundle, number * SIZE, x, outputs)
    with parts.samples_db.transaction():
        rows = parts.store.add(batch, made, float(number))
        rows += parts.store.label(labelled(number * SIZE, labels_of(outputs, 1000 + number)), float(number))
    parts.watch.consume(rows, parts.active, [(batch, made)], now_s=float(number))


def _states(parts: Parts) -> dict[str, dict[str, bytes]]:
    """What a standing would be if it were read again."""
    table = StandingTable(parts.agent_db)
    at = table.load(parts.watch.rules)
    states = {name: {key: a.tobytes() for key, a in one.to_arrays().items()} for name, one in at.states.items()}
    return states | {"policy": {"": repr((at.policy, at.place, at.findings, at.facts)).encode()}}


def _feed(parts: Parts, start: int) -> None:
    for number in range(start, len(STREAM)):
        with parts.samples_db.transaction():
            rows = parts.label(number * BATCH, STREAM[number])
        parts.watch.consume(rows, parts.active)


def _labelled(parts: Parts) -> int:
    return len(parts.store.labelled_since(0, 10_000))


@dataclass
class Gateway:
    """Orders, local work and held updates in a folder; no broker, and the worker in this process."""

    path: Path
    bundle: Bundle
    samples_db: Path
    signer: Signer
    boot_id: str
    session: HeardSession = field(default_factory=HeardSession)

    def __post_init__(self) -> None:
        broker = BrokerSettings("127.0.0.1", 1)
        self.database = open_database(self.path / "agent.db", synchronous="NORMAL")
        outbox = Outbox(self.database, GATEWAY, max_bytes=10**7, max_age_s=10**9)
        self.uploader = Uploader(broker, f"{GATEWAY}.up", TOPICS, GATEWAY, self.path / "updates")
        blobs = BlobStore(self.path / "base")
        work = LocalWork(
            TrainingSupervisor(self.path / "work"),
            Downloader(broker, f"{GATEWAY}.base", TOPICS, blobs, silence_s=0.2),
            blobs,
            self.uploader,
            outbox,
            limits=OperatorLimits(
                enabled=True, min_samples=1, max_rounds_per_hour=100, max_duration_s=60.0, worker=WorkerLimits(nice=0)
            ),
            serving=lambda: Serving(self.bundle.digest, self.bundle.path, None),
            samples_db=self.samples_db,
            residuals=Residuals(self.path / "residuals"),
        )
        self.orders = Orders(
            self.database,
            self.session,
            work,
            fleet=FLEET,
            gateway=GATEWAY,
            boot_id=self.boot_id,
            reply_topic=TOPICS.reply(GATEWAY),
            verify=lambda key_id, signature, body: verify_signature(self.signer.public, key_id, signature, body),
            configure=lambda order: None,
            identify=lambda: None,
        )

    def obey(self, action: Train) -> list[Reply]:
        """Take the command ``c1``, carry out what it leaves in the queue, and give every reply."""
        self.orders.receive(self.signer.signed("c1", 1, self.boot_id, action, fleet=FLEET), retained=False)
        if not self.orders._queue.empty():
            self.orders._carry_out(self.orders._queue.get_nowait())
        return [decode(Reply, payload, cap_bytes=REPLY_CAP_BYTES) for _, payload in self.session.published]


class DoneProcess:
    """A worker that has run already."""

    pid, returncode = 1, 0

    def poll(self) -> int:
        return 0


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The worker runs in this process; the folders of the jobs that it has worked on."""
    folders: list[Path] = []

    def spawn(folder: Path) -> tuple[DoneProcess, ProgressPipe]:
        folders.append(folder)
        result = worker.carry_out(folder / JOB_FILE)
        write_file(folder / RESULT_FILE, encode(result))
        reader, writer = os.pipe()
        os.close(writer)
        return DoneProcess(), ProgressPipe(reader)

    monkeypatch.setattr(worker, "confine", lambda limits: None)
    monkeypatch.setattr(worker, "age_s", lambda: 0.0)  # the tests' process is older than a round may take
    monkeypatch.setattr(supervisor, "_spawn", spawn)
    return folders


def test_a_round_is_trained_once_and_answered_whichever_step_fails(
    tmp_path: Path, bundle: Bundle, trained: list[Path]
) -> None:
    samples_db, signer = tmp_path / "samples.db", Signer()
    store_samples(samples_db, 60)
    base = make_reference(BASE)[0]
    action = TRAIN.model_copy(update={"bundle": bundle.digest, "base": base, "training_graph": "sgd"})

    def act(path: Path, k: int) -> Power:
        path.mkdir()
        trained.clear()
        first = Gateway(path, bundle, samples_db, signer, "boot1")
        BlobStore(path / "base").put(BASE)
        with until_the_cut(k, path) as power:
            first.obey(action)
        first.database.close()
        held = bool(list(path.glob("work/*/" + RESULT_FILE)))
        before = len(trained)
        again = Gateway(path, bundle, samples_db, signer, "boot2")
        (*_, reply) = again.obey(action)
        assert (reply.status, reply.boot_id) == ("ok", "boot2")
        assert isinstance(reply.result, TrainResult)
        assert again.uploader.offered() == ["c1"]
        offer = again.uploader._offers.find("c1")
        assert offer is not None
        assert offer.digest == reply.result.update.digest
        assert again.uploader._offers.chunk("c1", 0) is not None
        line = lineage(action)
        assert decode_residual(Residuals(path / "residuals").path(line).read_bytes())[0] == line
        if held or not power.is_out:
            assert len(trained) == before, f"trained again though held, after {power.trace[-1]}"
        assert len(trained) <= 2
        assert len(list((path / "work").iterdir())) <= 1  # removed by the next order
        again.database.close()
        shutil.rmtree(path)
        return power

    assert at_every_step(act, tmp_path) > 20


def test_chunks_that_are_held_are_not_fetched_again_whichever_step_fails(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(40 * 16384 - 100)
    reference, encoded = make_reference(data, 16384)
    chunk_list = make_chunk_list(data, 16384)
    pieces = list(chunks(data, 16384))

    def fetch(path: Path, fetched: list[int]) -> Path | None:
        store = BlobStore(path)
        held = store.sound(reference.digest)
        if held is not None:
            return held
        part = store.begin(reference, chunk_list, encoded)
        for index in part.missing:
            fetched.append(index)
            part.write(index, pieces[index])
        return store.finish(part)

    def act(path: Path, k: int) -> Power:
        path.mkdir()
        BlobStore(path)
        first: list[int] = []
        with until_the_cut(k, path) as power:
            fetch(path, first)
        synced = _commits_of_bits(power) * SYNC_EVERY_CHUNKS
        second: list[int] = []
        whole = fetch(path, second)
        assert whole is not None
        assert sha256_hex(whole.read_bytes()) == reference.digest
        assert len(second) <= len(pieces) - min(synced, len(first))
        assert [entry.name for entry in path.iterdir() if entry.is_file()] == [reference.digest]
        assert list((path / "parts").iterdir()) == []
        shutil.rmtree(path)
        return power

    assert at_every_step(act, tmp_path) > 40


def _commits_of_bits(power: Power) -> int:
    """How often the bitmap had been renamed into its place; the chunk list was the first to be."""
    done = power.trace[:-1] if power.is_out else power.trace
    return max(0, done.count("rename") - 1)
