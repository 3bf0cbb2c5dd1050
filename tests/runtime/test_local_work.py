"""Rounds and evaluations on a gateway, every part real."""

import time
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.runtime.local_work import EVALUATED_KEPT, OperatorLimits
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.training_orders import BALANCED_KEY, REHEARSAL_KEY, lineage, training_job
from edge_agent.runtime.training_reports import TrainingReports
from edge_agent.training.job import Job, WorkerLimits
from edge_agent.training.residual import decode_residual
from edge_agent.wire.blobs import make_reference, sha256_hex
from edge_agent.wire.messages import (
    Evaluate,
    TrainingEvent,
)
from edge_agent.wire.tensors import encode_weights
from edge_agent.wire.updates import decode_update
from tests.runtime.local_work_bench import BASE, ENDLESS, LONG_S, Bench, command, never, train_action
from tests.samples.inside import rewrite, wrong_but_for_holdout
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import tiny_weights


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
