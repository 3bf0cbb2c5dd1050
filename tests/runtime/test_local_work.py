import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.database import open_database
from edge_agent.link.download import MAX_BLOB_BYTES, Downloader
from edge_agent.link.outbox import Outbox
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.local_work import EVALUATED_KEPT, LocalWork, OperatorLimits
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.orders import OrderFailed
from edge_agent.runtime.training_orders import BALANCED_KEY, REHEARSAL_KEY, lineage, training_job
from edge_agent.runtime.training_reports import TrainingReports
from edge_agent.training.job import Job, TrainingJob, WorkerLimits
from edge_agent.training.residual import Residuals, decode_residual
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.blobs import BlobReference, make_reference, sha256_hex
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import (
    BlobMissingEvent,
    Command,
    Evaluate,
    EvaluateResult,
    Train,
    TrainingEvent,
    TrainResult,
)
from edge_agent.wire.messages.command import CommandAction
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event, EventBody
from edge_agent.wire.tensors import encode_weights
from edge_agent.wire.updates import decode_update
from server_bridge.demo.broker import Mosquitto, free_port
from tests.link.peers import TOPICS, Publisher
from tests.runtime.desk import GATEWAY, wait
from tests.samples.inside import rewrite, wrong_but_for_holdout
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import tiny_weights

BASE = encode_weights(tiny_weights(3))
SAMPLES = 100
ENDLESS = 1000
LONG_S = 60.0


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def samples_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("samples")
    store_samples(folder / "samples.db", SAMPLES)
    return folder / "samples.db"


@dataclass
class Bench:
    """Local work with every part real; without a broker its weights are there already."""

    path: Path
    bundle: Bundle
    samples_db: Path
    port: int = field(default_factory=free_port)
    enabled: bool = True
    min_samples: int = 1
    max_rounds_per_hour: int = 100
    max_duration_s: float = LONG_S

    def __post_init__(self) -> None:
        broker = BrokerSettings("127.0.0.1", self.port)
        self.serving = Serving(self.bundle.digest, self.bundle.path, None)
        self.answers: list[Serving] = []
        self.held: dict[str, bytes] = {}
        self.database = open_database(self.path / "agent.db", synchronous="NORMAL")
        self.outbox = Outbox(self.database, GATEWAY, max_bytes=10**7, max_age_s=10**9)
        self.blobs = BlobStore(self.path / "base")
        self.uploader = Uploader(broker, f"{GATEWAY}.up", TOPICS, GATEWAY, self.path / "updates")
        self.supervisor = TrainingSupervisor(self.path / "work")
        self.work = LocalWork(
            self.supervisor,
            Downloader(broker, f"{GATEWAY}.base", TOPICS, self.blobs, silence_s=0.2),
            self.blobs,
            self.uploader,
            self.outbox,
            limits=OperatorLimits(
                enabled=self.enabled,
                min_samples=self.min_samples,
                max_rounds_per_hour=self.max_rounds_per_hour,
                max_duration_s=self.max_duration_s,
                worker=WorkerLimits(nice=0),
            ),
            serving=lambda: self.answers.pop(0) if self.answers else self.serving,
            samples_db=self.samples_db,
            held=lambda digest: self.held.get(digest),
            residuals=Residuals(self.path / "residuals"),
        )

    def hold(self, data: bytes = BASE) -> BlobReference:
        self.blobs.put(data)
        return make_reference(data)[0]

    def train(
        self,
        command_id: str = "c1",
        *,
        base: BlobReference | None = None,
        ended: Callable[[], bool] = never,
        within_s: float = LONG_S,
        **changes: object,
    ) -> TrainResult:
        action = train_action(self.bundle, base or self.hold(), **changes)
        return self.work.train(command(command_id, action), action, ended, time.monotonic() + within_s)

    def evaluate(self, command_id: str, weights: BlobReference, **config: bool) -> EvaluateResult:
        action = Evaluate(bundle=self.bundle.digest, weights=weights, config=config)
        return self.work.evaluate(command(command_id, action), action, never, time.monotonic() + LONG_S)

    def refusal(self, **changes: object) -> OrderFailed:
        with pytest.raises(OrderFailed) as caught:
            self.train(**changes)  # type: ignore[arg-type]
        return caught.value

    def events(self) -> list[EventBody]:
        self.outbox.resend_all()
        return [
            decode(Event, data, cap_bytes=EVENT_CAP_BYTES).body for _, data in self.outbox.due(float(10**12), 10**6)
        ]

    def jobs(self) -> int:
        return len(list((self.path / "work").iterdir()))

    def close(self) -> None:
        self.supervisor.stop()
        self.database.close()


def train_action(served: Bundle, base: BlobReference, **changes: object) -> Train:
    fields: dict[str, object] = {
        "adaptation": "a1",
        "round": 3,
        "bundle": served.digest,
        "base": base,
        "cohort": "c7",
        "training_graph": "sgd",
        "learning_rate": 0.5,
        "epochs": 2,
        "batch_size": 8,
        "min_samples": 4,
        "max_samples": 1000,
        "seed": 7,
        "coding": "fp32",
    }
    return Train.model_validate({**fields, **changes})


def command(command_id: str, action: CommandAction) -> Command:
    return Command(
        fleet="fleet",
        gateway=GATEWAY,
        boot_id="b1",
        command_id=command_id,
        sequence=1,
        duration_s=LONG_S,
        action=action,
    )


@pytest.fixture
def bench(tmp_path: Path, bundle: Bundle, samples_db: Path) -> Iterator[Bench]:
    one = Bench(tmp_path, bundle, samples_db)
    yield one
    one.close()


def test_a_round_gives_a_held_update_and_its_manifest(bench: Bench, bundle: Bundle) -> None:
    result = bench.train()
    assert (result.round, result.cohort, result.update.base) == (3, "c7", sha256_hex(BASE))
    assert bench.uploader.offered() == ["c1"]
    held = next((bench.path / "updates").rglob("update")).read_bytes()
    assert sha256_hex(held) == result.update.digest
    assert set(decode_update(held, "fp32", bundle.manifest.trainable)) == {"w", "b"}
    assert result.metrics["num-examples"]
    (event,) = bench.events()
    assert isinstance(event, TrainingEvent)
    assert (event.command_id, event.step, event.samples) == ("c1", "done", result.metrics["num-examples"])
    bench.work.forget("c1")
    assert bench.jobs() == 0


def test_what_a_coding_lost_is_kept_for_the_next_round_of_the_line(bench: Bench, bundle: Bundle) -> None:
    base, digests = bench.hold(), []
    for number, (turn, adaptation) in enumerate([(3, "one"), (4, "one"), (5, "other")]):
        action = train_action(bundle, base, coding="int8", round=turn, adaptation=adaptation)
        result = bench.work.train(command(f"c{number}", action), action, never, time.monotonic() + LONG_S)
        digests.append(result.update.digest)
        (kept,) = (bench.path / "residuals").iterdir()
        assert decode_residual(kept.read_bytes())[0] == lineage(action)
    first, second, elsewhere = digests
    assert first == elsewhere != second


@pytest.mark.long
def test_a_long_round_tells_its_progress_at_the_lowest_priority(tmp_path: Path, bundle: Bundle) -> None:
    store_samples(tmp_path / "many.db", 500)
    bench = Bench(tmp_path, bundle, tmp_path / "many.db")
    bench.work._reports = TrainingReports(bench.outbox, interval_s=0.5)
    bench.train(epochs=ENDLESS, batch_size=1, within_s=10.0)
    events = [event for event in bench.events() if isinstance(event, TrainingEvent)]
    *progress, done = events
    assert [event.step for event in events] == ["progress"] * len(progress) + ["done"]
    assert progress
    assert progress[0].of_epochs == done.of_epochs == ENDLESS
    assert 0 < progress[0].epochs <= done.epochs
    assert progress[0].loss is not None
    assert bench.outbox.depth == len(events)
    bench.close()


def test_a_round_that_made_things_worse_gives_its_figures_and_no_update(tmp_path: Path, bundle: Bundle) -> None:
    wrong = tmp_path / "wrong.db"
    store_samples(wrong, 100)
    rewrite(wrong, wrong_but_for_holdout)
    bench = Bench(tmp_path, bundle, wrong)
    base = bench.hold(encode_weights(tiny_weights()))
    asked = {"base": base, "epochs": 5, "learning_rate": 0.5, "batch_size": 8}
    refused = bench.refusal(**asked)
    assert refused.reason == "made-worse"
    assert refused.metrics["proof-loss-after"] > refused.metrics["proof-loss-before"]
    assert bench.uploader.offered() == []
    sent = bench.train("c2", base=base, epochs=5, learning_rate=0.5, batch_size=8, send_worse=True)
    assert sent.metrics["made-worse"] == 1
    bench.close()


@pytest.mark.parametrize(
    ("config", "share", "balanced"),
    [
        ({}, 0.2, True),
        ({REHEARSAL_KEY: 0.5, BALANCED_KEY: False}, 0.5, False),
        ({REHEARSAL_KEY: 0}, 0.0, True),
        ({REHEARSAL_KEY: 1.0}, 0.2, True),
        ({REHEARSAL_KEY: "much"}, 0.2, True),
    ],
)
def test_a_round_may_say_how_much_of_the_past_goes_with_the_new(
    bundle: Bundle, config: dict[str, float | bool | str], share: float, balanced: bool
) -> None:
    limits = OperatorLimits(
        enabled=True,
        min_samples=1,
        max_rounds_per_hour=1,
        max_duration_s=1.0,
        worker=WorkerLimits(),
        rehearsal_share=0.2,
        balanced=True,
    )
    action = train_action(bundle, make_reference(BASE)[0], config=config)
    common = Job(
        command_id="c1",
        duration_s=1.0,
        bundle_dir=bundle.path,
        bundle=bundle.digest,
        weights_file=bundle.path,
        weights="0" * 64,
        samples_db=bundle.path,
        max_samples=10,
    )
    job = training_job(common, action, limits, from_sample=None)
    assert (job.rehearsal_share, job.balanced) == (share, balanced)


def test_an_evaluation_gives_counts_and_leaves_nothing(bench: Bench, bundle: Bundle) -> None:
    action = Evaluate(bundle=bundle.digest, weights=bench.hold())
    result = bench.work.evaluate(command("c1", action), action, never, time.monotonic() + LONG_S)
    assert result.weights == sha256_hex(BASE)
    assert set(result.metrics) == {"num-examples", "loss", "loss-error", "accuracy"}
    bench.work.forget("c1")
    assert (bench.events(), bench.uploader.offered(), bench.jobs()) == ([], [], 0)


def test_a_candidate_is_evaluated_on_the_samples_since_the_drift(bench: Bench) -> None:
    counts = {}
    for name, since, config in (
        ("all", None, {}),
        ("drifted", "s60", {}),
        ("candidate", "s60", {"clma-candidate": True}),
        ("calm", None, {"clma-candidate": True}),
    ):
        bench.serving = Serving(bench.serving.bundle, bench.serving.bundle_dir, since)
        counts[name] = bench.evaluate(name, bench.hold(), **config).metrics["num-examples"]
    assert counts["all"] == counts["drifted"] == counts["calm"]
    assert isinstance(counts["all"], int)
    assert isinstance(counts["candidate"], int)
    assert 0 < counts["candidate"] < 0.6 * counts["all"]


def test_weights_that_the_gateway_has_need_no_download_and_candidates_stay_until_one_is_trained_from(
    bench: Bench,
) -> None:
    own, other = encode_weights(tiny_weights(4)), encode_weights(tiny_weights(5))
    bench.held = {sha256_hex(own): own}
    bench.evaluate("c1", make_reference(own)[0], **{"clma-candidate": True})
    bench.evaluate("c2", bench.hold(other), **{"clma-candidate": True})
    assert bench.blobs.digests() == sorted([sha256_hex(own), sha256_hex(other)])
    bench.train("c3", base=make_reference(other)[0])
    assert bench.blobs.digests() == [sha256_hex(other)]
    for number in range(8):
        bench.evaluate(f"e{number}", bench.hold(encode_weights(tiny_weights(10 + number))))
    assert len(bench.blobs.digests()) == EVALUATED_KEPT


def test_training_reads_from_the_first_drifted_sample_on(bench: Bench) -> None:
    whole = bench.train("c1").metrics["num-examples"]
    bench.serving = Serving(bench.serving.bundle, bench.serving.bundle_dir, "s60")
    late = bench.train("c2").metrics["num-examples"]
    assert isinstance(late, int)
    assert isinstance(whole, int)
    assert 0 < late < 0.6 * whole


def test_the_operators_off_switch_cannot_be_switched_on_from_outside(
    tmp_path: Path, bundle: Bundle, samples_db: Path
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, enabled=False)
    bench.work.set_enabled(True)
    assert bench.refusal().reason == "training-disabled"
    bench.close()


def test_the_bridge_may_switch_training_off_and_on(bench: Bench) -> None:
    bench.work.set_enabled(False)
    assert bench.refusal().reason == "training-disabled"
    bench.work.set_enabled(True)
    assert bench.train().round == 3


def test_rounds_an_hour_are_limited_and_refusals_do_not_count(tmp_path: Path, bundle: Bundle, samples_db: Path) -> None:
    bench = Bench(tmp_path, bundle, samples_db, max_rounds_per_hour=1)
    for _ in range(3):
        assert bench.refusal(bundle="0" * 64).reason == "other-bundle"
    bench.train("c1")
    refused = bench.refusal(command_id="c2")
    assert (refused.reason, refused.detail) == ("rate-limit", "1 rounds in the last hour")
    assert bench.uploader.offered() == ["c1"]
    bench.close()


def test_an_order_for_another_bundle_is_refused_before_anything_is_fetched(bench: Bench) -> None:
    absent = make_reference(b"not there")[0]
    refused = bench.refusal(bundle="0" * 64, base=absent)
    assert refused.reason == "other-bundle"
    assert bench.serving.bundle[:12] in refused.detail
    action = Evaluate(bundle="0" * 64, weights=absent)
    with pytest.raises(OrderFailed, match="other-bundle"):
        bench.work.evaluate(command("c1", action), action, never, time.monotonic() + LONG_S)


def test_a_bundle_activated_meanwhile_voids_the_round(bench: Bench) -> None:
    bench.answers = [bench.serving, Serving("0" * 64, bench.serving.bundle_dir, None)]
    assert bench.refusal().reason == "bundle-changed"
    assert bench.uploader.offered() == []


def test_an_order_whose_time_is_over_is_not_begun(bench: Bench) -> None:
    assert bench.refusal(within_s=-1.0).reason == "too-late"
    assert not bench.supervisor.busy


@pytest.mark.parametrize(("ours", "ordered", "needed"), [(5000, 1, 5000), (1, 4000, 4000)])
def test_the_larger_minimum_of_samples_holds(
    tmp_path: Path, bundle: Bundle, samples_db: Path, ours: int, ordered: int, needed: int
) -> None:
    bench = Bench(tmp_path, bundle, samples_db, min_samples=ours)
    refused = bench.refusal(min_samples=ordered)
    assert refused.reason == "too-few-samples"
    assert f"of {needed}" in refused.detail
    (event,) = bench.events()
    assert isinstance(event, TrainingEvent)
    assert (event.step, event.detail[:16]) == ("failed", "too-few-samples:")
    bench.close()


def test_the_operators_longest_duration_ends_a_round(tmp_path: Path, bundle: Bundle, samples_db: Path) -> None:
    bench = Bench(tmp_path, bundle, samples_db, max_duration_s=0.05)
    assert bench.refusal(epochs=ENDLESS).reason == "killed-duration"
    assert not bench.supervisor.busy
    bench.close()


def test_weights_that_do_not_fit_are_the_workers_refusal(bench: Bench) -> None:
    assert bench.refusal(base=bench.hold(b"no weights at all")).reason == "bad-job"


def test_a_newer_order_kills_the_worker_and_its_files_do_not_pile_up(bench: Bench) -> None:
    newer = threading.Event()
    threading.Timer(0.6, newer.set).start()
    began_s = time.monotonic()
    assert bench.refusal(epochs=ENDLESS, batch_size=1, ended=newer.is_set).reason == "superseded"
    assert time.monotonic() - began_s < 5.0
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
    assert time.monotonic() - began_s < 1.0


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
    thread.join(30)
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
    assert time.monotonic() - began_s < 5.0
    bench.close()
