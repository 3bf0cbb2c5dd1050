"""What the check makes of the first samples and labels of a source."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.cli.check_source import misfit
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.sources.source import SourceBatch
from edge_agent.wire.manifest import Manifest
from tests.bundles.tailor.backbones import residual, tailored_bundle
from tests.training.tiny_bundle import tiny_bundle


def samples(*tasks: str | None) -> SampleBatch:
    ids = [f"s{place}" for place in range(len(tasks))]
    return SampleBatch(ids, [0.0] * len(ids), {"x": np.zeros((len(ids), 1), np.float32)}, tasks=list(tasks))


@pytest.fixture(scope="module")
def tailored(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return tailored_bundle(tmp_path_factory.mktemp("tasks"), residual()).manifest


def test_samples_and_labels_of_known_tasks_and_classes_fit(tailored: Manifest, tmp_path: Path) -> None:
    most = max(task.classes or 0 for task in tailored.tasks)
    assert misfit(SourceBatch(samples("weld", None, "press"), [Label("a", 0), Label("b", most - 1.0)]), tailored) == ""
    assert misfit(SourceBatch(samples("any"), []), tiny_bundle(tmp_path / "tiny").manifest) == ""


def test_a_task_that_the_bundle_does_not_have_is_named(tailored: Manifest) -> None:
    problem = misfit(SourceBatch(samples("press", "mill"), []), tailored)
    assert problem == "sample 's1' is of task 'mill', the bundle has press, weld"


@pytest.mark.parametrize("value", [-1, 0.5, 99])
def test_a_label_that_is_no_class_is_named(tailored: Manifest, value: float) -> None:
    problem = misfit(SourceBatch(samples("press"), [Label("a", 0), Label("b", value)]), tailored)
    assert problem.startswith(f"label {value:g} of sample 'b' is no class, 0..")
