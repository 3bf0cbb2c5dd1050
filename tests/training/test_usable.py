"""Samples that were labelled under another bundle."""

import numpy as np

from edge_agent.model.bundle import Bundle
from edge_agent.samples.record import Part, SampleSet
from edge_agent.training.usable import of_this_bundle
from edge_agent.wire.manifest import TaskSpec


def samples(labels: list[float], tasks: list[str | None], *, rehearsed: int = 0) -> SampleSet:
    features = {"x": np.arange(4.0 * len(labels), dtype=np.float32).reshape(-1, 4)}
    ids = [f"s{row}" for row in range(len(labels))]
    return SampleSet(features, np.array(labels), ids, Part.TRAIN, tasks, rehearsed)


def test_labels_that_are_no_class_of_this_bundle_are_left_out(bundle: Bundle) -> None:
    given = samples([0, 7, 0.5, -1, 2, 1], [None] * 6, rehearsed=3)
    kept = of_this_bundle(given, bundle.manifest)
    assert (kept.ids, kept.labels.tolist(), kept.rehearsed) == (["s0", "s4", "s5"], [0, 2, 1], 1)
    assert kept.labels.dtype == np.int64
    assert kept.features["x"][:, 0].tolist() == [0.0, 16.0, 20.0]
    none = of_this_bundle(samples([], []), bundle.manifest)
    assert len(none.labels) == 0


def test_a_label_must_be_a_class_of_its_samples_task(bundle: Bundle) -> None:
    tasks = [TaskSpec(name="a", file="infer.onnx", classes=3), TaskSpec(name="b", file="b.onnx", classes=2)]
    manifest = bundle.manifest.model_copy(update={"tasks": tasks})
    kept = of_this_bundle(samples([2, 2, 1, 2], [None, "b", "b", "a"]), manifest)
    assert (kept.ids, kept.tasks) == (["s0", "s2", "s3"], [None, "b", "a"])
