import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edge_agent.errors import TransientError
from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from edge_agent.runtime.pipeline import QUEUE_BATCHES, Pipeline
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving import server
from edge_agent.serving.server import ModelServer
from edge_agent.sources.source import SourceBatch
from tests.runtime.bench import samples
from tests.runtime.desk import WAIT_S, wait
from tests.training.tiny_bundle import tiny_weights


class ListSource:
    """Gives what it holds, then ends, or has nothing for ever."""

    bad_messages = 0

    def __init__(self, reads: Iterable[SourceBatch | Exception], *, ends: bool = True) -> None:
        self._reads = iter(reads)
        self._ends = ends
        self.closed = threading.Event()
        self.waits_s: set[float] = set()

    def read(self, timeout_s: float) -> SourceBatch | None:
        read = next(self._reads, None)
        if isinstance(read, Exception):
            raise read
        if read is None and not self._ends:
            self.waits_s.add(timeout_s)
            self.closed.wait(timeout_s)
            return SourceBatch()
        return read

    def close(self) -> None:
        self.closed.set()


class KeptSink:
    """Keeps the ids and outputs of what was predicted."""

    dropped = 0
    alive = True

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.outputs: list[NDArray[np.float32]] = []
        self.tasks: list[str | None] = []

    def start(self) -> None: ...

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        self.ids += ids
        self.outputs.append(outputs)
        self.tasks.append(task)

    def stop(self, timeout_s: float) -> None: ...


def pipeline(bundle: Bundle, source: ListSource) -> tuple[Pipeline, KeptSink]:
    sink = KeptSink()
    return Pipeline(source, ModelServer(bundle, tiny_weights(), "a" * 64, 1, "root"), sink), sink


def played(bundle: Bundle, reads: Iterable[SourceBatch | Exception]) -> tuple[Pipeline, KeptSink]:
    """After the source has come to its end."""
    source = ListSource(reads)
    one, sink = pipeline(bundle, source)
    one.start()
    wait(lambda: one.finished or not one.alive, "the end of the source")
    one.stop(WAIT_S)
    assert source.closed.is_set()
    return one, sink


def misfit(first: int) -> SampleBatch:
    batch = samples(first, 2)
    return SampleBatch(batch.ids, batch.times, {"x": np.zeros((2, 7), np.float32)})


def test_batches_are_predicted_and_passed_to_sink_and_recorder(bundle: Bundle) -> None:
    batch, labels = samples(0, 3), [Label("s0", 1)]
    one, sink = played(bundle, [SourceBatch(batch, labels), SourceBatch(), SourceBatch(None, labels)])
    expected = batch.features["x"] @ tiny_weights()["w"] + tiny_weights()["b"]
    np.testing.assert_allclose(sink.outputs[0], expected, rtol=1e-5)
    assert (one.served_samples, one.alive, one.failure) == (3, True, None)
    first, second = one.recordables.get_nowait(), one.recordables.get_nowait()
    assert (first.batch, first.labels, first.served and first.served.weights) == (batch, labels, "a" * 64)
    assert (second.batch, second.served, second.labels) == (None, None, labels)
    assert one.recordables.empty()


def test_a_full_queue_costs_records_never_predictions(bundle: Bundle) -> None:
    more = 20
    reads = [SourceBatch(samples(2 * k, 2), [Label(f"s{2 * k}", 0)]) for k in range(QUEUE_BATCHES + more)]
    one, sink = played(bundle, reads)
    assert one.served_samples == len(sink.ids) == 2 * (QUEUE_BATCHES + more)
    assert (one.unrecorded_samples, one.unrecorded_labels) == (2 * more, more)
    assert one.recordables.qsize() == QUEUE_BATCHES


def test_a_batch_that_does_not_fit_is_refused_and_serving_goes_on(bundle: Bundle) -> None:
    labels = [Label("s9", 1)]
    one, sink = played(bundle, [SourceBatch(misfit(0)), SourceBatch(misfit(2), labels), SourceBatch(samples(4, 2))])
    assert (one.refused_samples, one.served_samples, sink.ids) == (4, 2, ["s4", "s5"])
    kept = [one.recordables.get_nowait() for _ in range(one.recordables.qsize())]
    assert [(item.batch is not None, item.labels) for item in kept] == [(False, labels), (True, [])]


def looking_up(bundle: Bundle, path: Path) -> Bundle:
    """The tiny net, which also looks each feature up in a table of twenty entries: a hundred is refused."""
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    model = onnx.load_from_string(files["infer.onnx"])
    for node in model.graph.node:
        node.output[:] = ["sums" if name == "logits" else name for name in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(20, np.float32), "table"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["x"], ["places"], to=onnx.TensorProto.INT64),
            helper.make_node("Gather", ["table", "places"], ["entries"]),
            helper.make_node("ReduceSum", ["entries", "axes"], ["nothing"]),
            helper.make_node("Add", ["sums", "nothing"], ["logits"]),
        ]
    )
    files["infer.onnx"] = model.SerializeToString()
    return write_bundle(path, bundle.manifest.model_copy(update={"files": file_digests(files)}), files)


def test_of_a_long_read_only_the_run_that_is_refused_is_lost(bundle: Bundle, tmp_path: Path) -> None:
    batch, labels = samples(0, 8), [Label("s0", 1)]
    batch.features["x"][3] = 100.0
    one, sink = played(looking_up(bundle, tmp_path / "looking-up"), [SourceBatch(batch, labels, 2)])
    assert (one.served_samples, one.refused_samples) == (6, 2)
    assert sink.ids == ["s0", "s1", "s4", "s5", "s6", "s7"]
    kept = [one.recordables.get_nowait() for _ in range(one.recordables.qsize())]
    assert [item.batch.ids for item in kept if item.batch is not None] == [["s0", "s1"], ["s4", "s5", "s6", "s7"]]
    assert [item.labels for item in kept] == [[], labels]


def test_a_long_read_is_predicted_run_by_run_and_handed_on_as_soon_as_runs_take_long(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, labels = samples(0, 7), [Label("s0", 1)]
    whole, sink = played(bundle, [SourceBatch(batch, labels, 3)])
    monkeypatch.setattr(server, "RUNS_S", 0.0)
    parts, slow_sink = played(bundle, [SourceBatch(batch, labels, 3)])
    (item,) = [whole.recordables.get_nowait() for _ in range(whole.recordables.qsize())]
    assert item == (batch, item.served, labels)
    kept = [parts.recordables.get_nowait() for _ in range(parts.recordables.qsize())]
    assert [(len(item.batch.ids), item.labels) for item in kept if item.batch] == [(3, []), (3, []), (1, labels)]
    assert slow_sink.ids == sink.ids == batch.ids
    runs = [ModelServer(bundle, tiny_weights(), "a" * 64, 1, "root").process(batch.rows(k, k + 3)) for k in (0, 3, 6)]
    np.testing.assert_array_equal(np.concatenate(sink.outputs), np.concatenate([run.outputs for run in runs]))
    np.testing.assert_array_equal(np.concatenate(slow_sink.outputs), np.concatenate(sink.outputs))


def test_values_that_are_not_finite_are_served_too(bundle: Bundle) -> None:
    batch = samples(0, 2)
    batch.features["x"][0] = np.nan
    one, sink = played(bundle, [SourceBatch(batch)])
    assert np.isnan(sink.outputs[0][0]).all()
    assert np.isfinite(sink.outputs[0][1]).all()
    assert one.served_samples == 2


@pytest.mark.parametrize("error", [TransientError("the source is broken"), AssertionError("a defect")])
def test_a_broken_source_ends_it_for_the_supervisor_to_see(bundle: Bundle, error: Exception) -> None:
    one, _ = played(bundle, [SourceBatch(samples(0, 1)), error])
    assert (one.alive, one.finished, one.failure, one.served_samples) == (False, False, error, 1)


def test_it_stops_at_once_although_the_source_waits(bundle: Bundle) -> None:
    source = ListSource([SourceBatch(samples(0, 1))], ends=False)
    one, _ = pipeline(bundle, source)
    one.start()
    wait(lambda: one.served_samples == 1, "the first sample")
    wait(lambda: bool(source.waits_s), "the source to wait")
    one.stop(WAIT_S)
    assert not one.alive
    assert max(source.waits_s) < 1.0
