"""A gateway that serves two tasks by one bundle."""

import queue
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.runtime.pipeline import UNKNOWN_TASKS_NAMED, Pipeline, Recordable
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import ModelServer
from edge_agent.sources.source import SourceBatch
from tests.bundles.tailor.backbones import residual, tailored_bundle, two_tasks
from tests.runtime.desk import wait
from tests.runtime.test_pipeline import KeptSink, ListSource
from tests.training.tiny_bundle import tiny_bundle, tiny_samples, tiny_weights

X = two_tasks(residual(), 12)["x"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tailored_bundle(tmp_path_factory.mktemp("tasks"), residual())


def samples(*tasks: str | None) -> SampleBatch:
    n = len(tasks)
    return SampleBatch([f"s{k}" for k in range(n)], [float(k) for k in range(n)], {"x": X[:n]}, tasks=list(tasks))


def server(bundle: Bundle) -> ModelServer:
    return ModelServer(bundle, bundle.initial_weights(), "a" * 64, 1, "root")


def played(model: ModelServer, *reads: SourceBatch) -> tuple[Pipeline, KeptSink, list[Recordable]]:
    sink, kept = KeptSink(), list[Recordable]()
    pipeline = Pipeline(ListSource(reads), model, sink)
    pipeline.start()
    wait(lambda: pipeline.finished or not pipeline.alive, "the end of the source")
    pipeline.stop(5.0)
    while True:
        try:
            kept.append(pipeline.recordables.get_nowait())
        except queue.Empty:
            return pipeline, sink, kept


def test_each_sample_gets_its_tasks_output_and_labels_come_last(bundle: Bundle) -> None:
    labels = [Label("s0", 1)]
    pipeline, sink, kept = played(server(bundle), SourceBatch(samples("weld", None, "weld", "press"), labels))
    assert [(item.batch and item.batch.ids, item.batch and item.batch.tasks, item.labels) for item in kept] == [
        (["s0", "s2"], ["weld", "weld"], []),
        (["s1", "s3"], ["press", "press"], labels),
    ]
    weights = bundle.initial_weights()
    for item, task, rows in zip(kept, ("weld", "press"), ([0, 2], [1, 3]), strict=True):
        assert item.served is not None
        expected = InferenceModel(bundle, weights, task=task).run({"x": X[rows]})["y"]
        np.testing.assert_array_equal(item.served.outputs, expected)
    assert [part.shape for part in sink.outputs] == [(2, 3), (2, 4)]
    assert sink.tasks == ["weld", "press"]
    assert (pipeline.served_samples, pipeline.refused_samples) == (4, 0)


def test_an_unknown_task_is_refused_by_name_and_the_rest_is_served(bundle: Bundle) -> None:
    reads = [SourceBatch(samples("mill", "weld", "mill")), SourceBatch(samples("mill")), SourceBatch(samples("press"))]
    pipeline, sink, _ = played(server(bundle), *reads)
    assert (sink.ids, pipeline.served_samples, pipeline.refused_samples) == (["s1", "s0"], 2, 3)
    assert pipeline.unknown_tasks == {"mill": 3}


def test_names_of_unknown_tasks_do_not_fill_the_memory(bundle: Bundle) -> None:
    reads = [SourceBatch(samples(f"t{k}")) for k in range(3 * UNKNOWN_TASKS_NAMED)]
    pipeline, _, _ = played(server(bundle), *reads)
    assert len(pipeline.unknown_tasks) == UNKNOWN_TASKS_NAMED
    assert pipeline.refused_samples == 3 * UNKNOWN_TASKS_NAMED


def test_a_bundle_without_tasks_serves_any_task(tmp_path: Path) -> None:
    one = ModelServer(tiny_bundle(tmp_path / "tiny"), tiny_weights(), "a" * 64, 1, "root")
    batch = SampleBatch(["a", "b"], [0.0, 1.0], dict(tiny_samples(2)[0]), tasks=["press", None])
    pipeline, sink, kept = played(one, SourceBatch(batch))
    assert (sink.ids, pipeline.refused_samples) == (["a", "b"], 0)
    assert [item.batch and item.batch.tasks for item in kept] == [["press", None]]


def test_a_swap_changes_every_task_and_shadowing_none(bundle: Bundle) -> None:
    model, batch = server(bundle), samples("weld", "weld")
    before = model.process(batch).outputs
    other = {name: value * np.float32(1.5) for name, value in bundle.initial_weights().items()}
    prepared = model.prepare(bundle, other, "b" * 64, 2, "root")
    shadowed = model.shadow(prepared, batch).outputs
    np.testing.assert_array_equal(model.process(batch).outputs, before)
    model.swap(prepared)
    np.testing.assert_array_equal(model.process(batch).outputs, shadowed)
    with pytest.raises(DataError, match="no task 'mill'"):
        model.process(samples("mill"))
