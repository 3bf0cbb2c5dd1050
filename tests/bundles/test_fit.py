"""Fitting a bundle by its own graph."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.drift.loss_rise import MONITOR_NAME
from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import Epoch, FitSettings, fit_bundle, score_bundle
from tests.bundles.nets import classified, conv1d, save_npz


@pytest.fixture
def start(tmp_path: Path) -> Bundle:
    held_out = save_npz(tmp_path / "held_out.npz", **classified(conv1d(), 120, seed=7))
    save_npz(tmp_path / "train.npz", **classified(conv1d(), 300, seed=6))
    return build_bundle(conv1d(), held_out, BuildSettings(["*"], "cross-entropy"), tmp_path / "start")


def fitted(start: Bundle, name: str, settings: FitSettings, train: str = "train.npz") -> Bundle:
    folder = start.path.parent
    return fit_bundle(start.path, folder / train, folder / "held_out.npz", settings, folder / name)


def test_fit_learns_and_calibrates_anew(start: Bundle) -> None:
    held_out = start.path.parent / "held_out.npz"
    before = score_bundle(start, held_out)
    after_fit = fitted(start, "fitted", FitSettings(epochs=12))
    after = score_bundle(after_fit, held_out)
    assert before.accuracy is not None
    assert after.accuracy is not None
    assert after.accuracy > 0.95 > before.accuracy
    assert after.loss < 0.3 * before.loss
    assert after_fit.manifest.monitors[MONITOR_NAME] != start.manifest.monitors[MONITOR_NAME]
    assert after_fit.manifest.training == start.manifest.training
    assert after_fit.read("infer.onnx") == start.read("infer.onnx")


def test_same_seed_gives_the_same_bundle_and_another_does_not(start: Bundle) -> None:
    digests = [fitted(start, f"f{i}", FitSettings(2, seed=seed)).digest for i, seed in enumerate([1, 1, 2])]
    assert digests[0] == digests[1] != digests[2]


def test_holdout_rows_do_not_count(start: Bundle) -> None:
    folder = start.path.parent
    rows = classified(conv1d(), 300, seed=6)
    poison = {"x": np.full_like(rows["x"], 50.0), "label": rows["label"]}
    mixed = {name: np.concatenate([rows[name], poison[name]]) for name in rows}
    save_npz(folder / "mixed.npz", **mixed, holdout=np.arange(600) >= 300)
    clean = fitted(start, "clean", FitSettings(2))
    assert fitted(start, "mixed", FitSettings(2), train="mixed.npz").digest == clean.digest


def test_every_epoch_is_told(start: Bundle) -> None:
    epochs: list[Epoch] = []
    folder = start.path.parent
    fit_bundle(
        start.path,
        folder / "train.npz",
        folder / "held_out.npz",
        FitSettings(3),
        folder / "told",
        on_epoch=epochs.append,
    )
    assert [epoch.number for epoch in epochs] == [1, 2, 3]
    assert epochs[2].loss < epochs[0].loss


def test_diverging_loss_is_refused_with_the_remedy(start: Bundle) -> None:
    with pytest.raises(DataError, match=r"the training (loss|step) is not finite \(lower the learning rate\)"):
        fitted(start, "diverged", FitSettings(2, learning_rate=1e30))
    assert not (start.path.parent / "diverged").exists()


def test_what_cannot_end_in_a_bundle_is_refused_before_the_work(start: Bundle) -> None:
    folder = start.path.parent
    epochs: list[Epoch] = []

    def refused(settings: FitSettings, out: Path) -> str:
        with pytest.raises(DataError) as caught:
            fit_bundle(start.path, folder / "train.npz", folder / "held_out.npz", settings, out, on_epoch=epochs.append)
        return caught.value.problem

    assert "not empty" in refused(FitSettings(1), start.path)
    assert "not empty" in refused(FitSettings(1), folder / "train.npz")
    assert "120 held-out losses" in refused(FitSettings(1, monitor_batch=61), folder / "new")
    assert epochs == []
