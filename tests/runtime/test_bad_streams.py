"""Streams that no sensor should give, through source, server, recorder, screen and every monitor of a real bundle.

Each has a stated outcome (docs/drift.md), ends no thread, and raises no flag. Everything is fixed by seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.config import MonitorSection
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.pipeline import Pipeline
from edge_agent.runtime.recorder import Recorder
from edge_agent.runtime.screen import screen_of
from edge_agent.runtime.screening import Screening
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import watch_rules
from edge_agent.samples.holdout import HoldoutCounts
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer
from edge_agent.sources.source import SourceBatch
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import FlagEvent, SensorFaultEvent
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event, EventBody
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.runtime.desk import wait
from tests.runtime.test_pipeline import KeptSink, ListSource

SENSORS, CLASSES = 6, 3
GOOD, BAD, READ = 320, 640, 32
WIDE = 100_000


def centres(sensors: int) -> NDArray[np.float64]:
    return np.random.default_rng(7).normal(size=(CLASSES, sensors)) * (1.5 if sensors < WIDE else 0.02)


def draw(rows: int, seed: int, sensors: int = SENSORS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Three Gaussians."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, rows)
    return (centres(sensors)[label] + rng.normal(size=(rows, sensors))).astype(np.float32), label


def made_bundle(folder: Path, rows: int, sensors: int = SENSORS) -> Bundle:
    """The net that is right as often as any can be, with all monitors."""
    middle = centres(sensors)
    tensors = {"w": middle.T, "b": -0.5 * (middle**2).sum(axis=1)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["logits"])],
        "gaussians",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", sensors])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in tensors.items()],
    )
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x, label = draw(rows, 1, sensors)
    np.savez(folder / "calibration.npz", x=x, label=label)
    settings = BuildSettings(trainable=["w", "b"], loss="cross-entropy", optimisers=("sgd",))
    return build_bundle(model, folder / "calibration.npz", settings, folder / "bundle")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    # of 2,400 rows: one false alarm in 150 batches is promised, and a stream here has about 40
    return made_bundle(tmp_path_factory.mktemp("bad"), 2400)


@dataclass
class Outcome:
    """What became of a stream."""

    served: int
    refused: int
    lost: int
    store: SampleStore
    trained: set[str]
    events: list[EventBody]
    watch: DriftWatch
    faulty: int
    flags: list[FlagEvent] = field(init=False)
    faults: list[SensorFaultEvent] = field(init=False)

    def __post_init__(self) -> None:
        self.flags = [body for body in self.events if isinstance(body, FlagEvent)]
        self.faults = [body for body in self.events if isinstance(body, SensorFaultEvent)]

    def told(self) -> list[tuple[str, str]]:
        return [(one.fault, one.sensor) for one in self.faults if one.until_s is None or one.sensor == "time"]


def played(
    folder: Path, bundle: Bundle, reads: Sequence[SourceBatch], section: MonitorSection | None = None
) -> Outcome:
    """A stream played to its end through a gateway's own parts."""
    agent_db = open_database(folder / "agent.db", synchronous="NORMAL")
    samples_db = open_database(folder / "samples.db", synchronous="NORMAL")
    outbox = Outbox(agent_db, "gw1", max_bytes=10**7, max_age_s=10**9)
    manifest = bundle.manifest
    store = SampleStore(
        samples_db, inputs=manifest.inputs, classes=CLASSES, proof_share=0.0, max_samples=10_000, label_wait_s=1e9
    )
    server = ModelServer(bundle, bundle.initial_weights(), "a" * 64, 1, "root")
    rules = watch_rules(section or MonitorSection(label_free="always"), bundle)
    watch = DriftWatch(agent_db, outbox, store, gateway="gw1", rules=rules)
    screening = Screening(samples_db, outbox, gateway="gw1", screen_of=lambda digest: screen_of(bundle))
    pipeline = Pipeline(ListSource(reads), server, KeptSink())
    recorder = Recorder(
        pipeline.recordables,
        server,
        samples_db,
        store,
        HoldoutCounts(samples_db, kind=manifest.kind, loss=manifest.loss, bucket_s=1000.0),
        watch,
        screening,
        outbox,
        flagged=lambda: None,
        counts_interval_s=3600.0,
    )
    recorder.start()
    pipeline.start()
    wait(lambda: pipeline.finished, "the stream's end")
    recorder.stop(30.0)
    pipeline.stop(5.0)
    assert recorder.failure is None
    assert pipeline.failure is None
    assert not recorder.alive
    sent = [decode(Event, data, cap_bytes=EVENT_CAP_BYTES) for _, data in outbox.due(float(10**12), limit=10**6)]
    return Outcome(
        pipeline.served_samples,
        pipeline.refused_samples,
        recorder.lost_batches,
        store,
        set(store.training_set(None, 10_000).ids),
        [event.body for event in sorted(sent, key=lambda event: event.sequence)],
        watch,
        screening.faulty_samples,
    )


def reads_of(
    x: NDArray[np.float32],
    label: NDArray[np.int64] | None,
    *,
    first: int = 0,
    times_s: NDArray[np.float64] | None = None,
    ids: Sequence[str] | None = None,
) -> Iterator[SourceBatch]:
    """Samples in reads of 32, each with its labels."""
    for start in range(0, len(x), READ):
        rows = range(start, min(start + READ, len(x)))
        names = [f"s{first + row}" if ids is None else ids[row] for row in rows]
        times = [float(first + row) if times_s is None else float(times_s[row]) for row in rows]
        labels = [] if label is None else [Label(name, int(label[row])) for name, row in zip(names, rows, strict=True)]
        yield SourceBatch(SampleBatch(names, times, {"x": x[rows.start : rows.stop]}), labels)


def good(first: int = 0, seed: int = 2) -> list[SourceBatch]:
    x, label = draw(GOOD, seed)
    return list(reads_of(x, label, first=first))


def between(bad: Sequence[SourceBatch]) -> list[SourceBatch]:
    """Good samples, bad ones, good ones."""
    return [*good(), *bad, *good(first=GOOD + BAD, seed=4)]


def names(first: int, count: int) -> set[str]:
    return {f"s{first + row}" for row in range(count)}


def test_nothing(tmp_path: Path, bundle: Bundle) -> None:
    empty = SampleBatch([], [], {"x": np.zeros((0, SENSORS), np.float32)})
    seen = played(tmp_path, bundle, [SourceBatch(), SourceBatch(empty), SourceBatch()])
    assert (seen.served, seen.refused, seen.lost, seen.events) == (0, 0, 0, [])


def test_one_row(tmp_path: Path, bundle: Bundle) -> None:
    x, label = draw(1, 3)
    seen = played(tmp_path, bundle, list(reads_of(x, label)))
    assert (seen.served, seen.events) == (1, [])
    assert seen.store.counts.labelled == 1


@pytest.mark.parametrize(
    ("value", "fault"), [(np.nan, "missing"), (np.inf, "not-finite"), (-np.inf, "not-finite"), (None, "stuck")]
)
def test_broken_everywhere(tmp_path: Path, bundle: Bundle, value: float | None, fault: str) -> None:
    """All NaN, infinities, constant: every sensor is told, nothing is trained on, judged or flagged, and all goes on
    with its end."""
    x, label = draw(BAD, 3)
    if value is None:
        x, label = np.repeat(x[:1], BAD, axis=0), np.repeat(label[:1], BAD)
    else:
        x[:] = value
    seen = played(tmp_path, bundle, between(list(reads_of(x, label, first=GOOD))))
    assert seen.flags == []
    assert seen.told() == [(fault, f"x[{sensor}]") for sensor in range(SENSORS)]
    assert [one.open_faults for one in seen.faults][-1] == 0
    assert seen.served == seen.store.counts.samples == seen.store.counts.labelled == 2 * GOOD + BAD
    passed = 12 if value is None else 0
    assert len(seen.trained & names(GOOD, BAD)) <= passed
    assert names(0, GOOD - READ) <= seen.trained
    assert len(seen.trained & names(GOOD + BAD, GOOD)) >= GOOD - 128


def test_a_single_class(tmp_path: Path, bundle: Bundle) -> None:
    """The model is as right as ever: the labels say so, and decide."""
    x, label = draw(3 * BAD, 3)
    chosen = np.flatnonzero(label == 1)[:BAD]
    seen = played(tmp_path, bundle, between(list(reads_of(x[chosen], label[chosen], first=GOOD))), MonitorSection())
    assert (seen.flags, seen.told()) == ([], [])
    assert names(0, 2 * GOOD) <= seen.trained


def test_an_unseen_class(tmp_path: Path, bundle: Bundle) -> None:
    """A label that is no class of the bundle is refused and counted; its sample stays without."""
    x, label = draw(BAD, 3)
    label[::2] = CLASSES
    seen = played(tmp_path, bundle, between(list(reads_of(x, label, first=GOOD))))
    assert (seen.flags, seen.told()) == ([], [])
    assert seen.store.refused_labels == BAD // 2
    assert seen.store.counts.labelled == 2 * GOOD + BAD // 2


def test_labels_before_samples(tmp_path: Path, bundle: Bundle) -> None:
    x, label = draw(BAD, 3)
    late = list(reads_of(x, label, first=GOOD))
    early = [SourceBatch(None, read.labels) for read in late] + [SourceBatch(read.samples, []) for read in late]
    seen = played(tmp_path, bundle, between(early))
    assert (seen.flags, seen.told()) == ([], [])
    assert seen.store.counts.labelled == 2 * GOOD + BAD
    assert seen.watch.cursor >= 2 * GOOD + BAD - 32


def test_duplicate_ids(tmp_path: Path, bundle: Bundle) -> None:
    """The first sample of an id is kept; the others are served, counted, and nothing more."""
    x, label = draw(BAD, 3)
    ids = [f"s{GOOD + row // 2}" for row in range(BAD)]
    seen = played(tmp_path, bundle, between(list(reads_of(x, label, first=GOOD, ids=ids))))
    assert (seen.flags, seen.told()) == ([], [])
    assert seen.served == 2 * GOOD + BAD
    assert seen.store.counts.duplicate_samples == BAD // 2


def test_a_clock_that_runs_backwards(tmp_path: Path, bundle: Bundle) -> None:
    """A jump back is told, once a jump; the samples are used."""
    x, label = draw(BAD, 3)
    times = 1e9 + np.arange(BAD, dtype=np.float64)
    times[BAD // 2 :] -= 3600.0
    seen = played(tmp_path, bundle, between(list(reads_of(x, label, first=GOOD, times_s=times))))
    assert seen.flags == []
    assert seen.told() == [("time-gap", "time"), ("clock-backwards", "time"), ("clock-backwards", "time")]
    assert names(0, 2 * GOOD + BAD) <= seen.trained


def test_times_that_are_none(tmp_path: Path, bundle: Bundle) -> None:
    """A batch with a time that is no number is served and refused by the store; the others are kept."""
    x, label = draw(BAD, 3)
    times = np.arange(GOOD, GOOD + BAD, dtype=np.float64)
    times[100] = np.nan
    seen = played(tmp_path, bundle, between(list(reads_of(x, label, first=GOOD, times_s=times))))
    assert (seen.flags, seen.told()) == ([], [])
    assert seen.lost == 1
    assert seen.store.counts.samples == 2 * GOOD + BAD - READ


def test_a_hundred_thousand_features(tmp_path: Path) -> None:
    """Too many to be sensors: they are looked at for being numbers; one that is none keeps its sample from training."""
    bundle = made_bundle(tmp_path, 96, WIDE)
    x, label = draw(96, 2, WIDE)
    x[40, 77_777] = np.nan
    seen = played(tmp_path, bundle, list(reads_of(x, label)))
    assert (seen.flags, seen.told()) == ([], [])
    assert seen.served == 96
    assert names(0, 96) - seen.trained == {"s40"}
