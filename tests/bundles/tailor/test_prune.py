"""What pruning takes out, and what it leaves as it was."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import WEIGHTS, Bundle, file_digests, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.tailor.prune import Pruning, prune_bundle
from server_bridge.bundles.tailor.scoring import read_task_data
from tests.bundles.nets import save_npz
from tests.bundles.tailor.backbones import residual, tailored_bundle, two_tasks

GONE = -1e4


def with_weights(bundle: Bundle, weights: Weights, out: Path) -> Bundle:
    files = {name: bundle.read(name) for name in bundle.manifest.files} | {WEIGHTS: encode_weights(weights)}
    return write_bundle(out, bundle.manifest.model_copy(update={"files": file_digests(files)}), files)


def pruned(folder: Path, weights: Weights, threshold: float = 0.05) -> tuple[Bundle, Bundle, Pruning]:
    """The bundle with these weights, what pruning makes of it, and what it says."""
    start = folder / "tailored"
    before = with_weights(bundle_at(start), weights, folder / "trained")
    data = save_npz(folder / "held_out.npz", **two_tasks(residual(), 240, seed=7))
    after, pruning = prune_bundle(before.path, data, folder / "pruned", threshold=threshold)
    return before, after, pruning


def bundle_at(path: Path) -> Bundle:
    return tailored_bundle(path.parent, residual(), name=path.name)


def initial(folder: Path) -> Weights:
    return bundle_at(folder / "first").initial_weights()


def outputs(bundle: Bundle, task: str) -> np.ndarray:
    x = two_tasks(residual(), 50, seed=3)["x"]
    return InferenceModel(bundle, bundle.initial_weights(), task=task).run({"x": x})["y"]


def test_branches_of_coefficient_zero_go_and_outputs_stay(tmp_path: Path) -> None:
    weights = initial(tmp_path)
    weights["press.layer2.mix"][0] = [0.5, GONE]
    weights["press.layer3.mix"][0] = [0.5, GONE, 0.3]
    before, after, pruning = pruned(tmp_path, weights, threshold=1e-6)
    assert [(each.task, each.value, each.branch, each.alpha, each.share) for each in pruning.removed] == [
        ("press", "a", "from layer 1", 0.0, 0.0),
        ("press", "m", "from layer 1", 0.0, 0.0),
    ]
    names = {spec.name for spec in after.manifest.trainable if spec.role == "task:press"}
    assert names == {"press.layer3.mix", "press.layer3.from2", "press.head.weight", "press.head.bias"}
    for task in ("press", "weld"):
        np.testing.assert_allclose(outputs(after, task), outputs(before, task), rtol=1e-6, atol=1e-6)
    assert len(after.read("infer.onnx")) < len(before.read("infer.onnx"))
    assert pruning.values == (
        sum(v.size for v in weights.values()),
        sum(v.size for v in after.initial_weights().values()),
    )
    assert pruning.before["press"].accuracy == pruning.after["press"].accuracy


def test_what_remains_keeps_its_coefficients(tmp_path: Path) -> None:
    """A proxy that gives little is taken out although its coefficient is large; the others are not scaled up."""
    weights = initial(tmp_path)
    weights["weld.layer3.mix"][0] = [0.0, 0.0, 0.0]
    weights["weld.layer3.from2"] *= 0.01
    before, after, pruning = pruned(tmp_path, weights, threshold=0.02)
    gone = [each for each in pruning.removed if each.task == "weld" and each.value == "m"]
    assert [(each.branch, round(each.alpha, 4)) for each in gone] == [("from layer 2", 0.3333)]
    kept = after.initial_weights()["weld.layer3.mix"].astype(np.float64)[0]
    np.testing.assert_allclose(np.exp(kept) / np.exp(kept).sum(), [1 / 3, 1 / 3, 1 / 3], rtol=1e-6)
    change = np.abs(outputs(after, "weld") - outputs(before, "weld")).max()
    assert 0 < change < 0.05 * np.abs(outputs(before, "weld")).max()


def test_the_backbones_layer_is_a_branch_too_and_what_only_it_read_goes_with_it(tmp_path: Path) -> None:
    weights = initial(tmp_path)
    weights["press.layer3.mix"][0] = [GONE, 0.0, GONE]
    before, after, pruning = pruned(tmp_path, weights, threshold=0.01)
    gone = {(each.value, each.branch): each.share for each in pruning.removed if each.task == "press"}
    assert gone[("m", "backbone")] == gone[("m", "from layer 2")] == 0.0
    assert gone[("a", "backbone")] is None  # nothing reads layer 2 any more
    names = {spec.name for spec in after.manifest.trainable if spec.role == "task:press"}
    assert names == {"press.layer3.mix", "press.layer3.from1", "press.head.weight", "press.head.bias"}
    np.testing.assert_allclose(outputs(after, "press"), outputs(before, "press"), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(outputs(after, "weld"), outputs(before, "weld"), rtol=1e-6, atol=1e-6)


def test_a_pruned_bundle_trains_on_and_is_pruned_again(tmp_path: Path) -> None:
    weights = initial(tmp_path)
    weights["press.layer3.mix"][0] = [1.0, -6.0, 0.0]
    _, after, _ = pruned(tmp_path, weights, threshold=0.05)
    data = two_tasks(residual(), 64)
    rows = data["task"] == "press"
    step = TrainingStep(after, "press-adam", after.initial_weights())
    losses = [step.step({"x": data["x"][rows]}, data["label"][rows], learning_rate=0.02) for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    again, pruning = prune_bundle(after.path, tmp_path / "held_out.npz", tmp_path / "again", threshold=0.9)
    assert {each.branch for each in pruning.removed} >= {"from layer 2"}
    assert pruning.values[1] < pruning.values[0]
    assert again.manifest.tasks == after.manifest.tasks


def test_a_threshold_of_zero_removes_nothing(tmp_path: Path) -> None:
    before, after, pruning = pruned(tmp_path, initial(tmp_path), threshold=0.0)
    assert pruning.removed == ()
    assert after.read(WEIGHTS) == before.read(WEIGHTS)
    for task in ("press", "weld"):
        np.testing.assert_array_equal(outputs(after, task), outputs(before, task))


def test_what_cannot_be_pruned_is_refused(tmp_path: Path) -> None:
    bundle = bundle_at(tmp_path / "one")
    data = save_npz(tmp_path / "press.npz", **{**two_tasks(residual(), 240), "task": np.full(240, "press")})
    with pytest.raises(DataError, match="no row of task 'weld'"):
        prune_bundle(bundle.path, data, tmp_path / "out")
    with pytest.raises(DataError, match=r"threshold 1 is not in \[0, 1\)"):
        prune_bundle(bundle.path, data, tmp_path / "out", threshold=1.0)
    with pytest.raises(DataError, match="has no tasks"):
        read_task_data(data, bundle.manifest.model_copy(update={"tasks": []}))
