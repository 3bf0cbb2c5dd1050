from pathlib import Path

import numpy as np

from edge_agent.drift.label_free import LABEL_FREE_FILE
from edge_agent.training.fed_ade import label_free_calibration
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.benchmarks.cohorts_data.real import dense_net
from tests.training.label_free_bundle import gaussian, label_free_bundle


def test_the_calibration_is_that_of_the_weights_that_serve(tmp_path: Path) -> None:
    bundle = label_free_bundle(tmp_path / "net")
    fitted = label_free_calibration(bundle)
    assert fitted is not None
    assert np.abs(fitted.class_prior - 1 / 3).max() < 0.1, "classes are equal in the held-out data, and it knows them"
    assert fitted.uncertainty is not None
    assert fitted.representation is not None, "a head makes its embedding an output"
    assert fitted.uncertainty.reference > 0.1
    built = (tmp_path / "net" / "built" / LABEL_FREE_FILE).read_bytes()
    assert built != bundle.read(LABEL_FREE_FILE), "fitting calibrates again"


def test_a_bundle_without_such_graphs_carries_no_calibration(tmp_path: Path) -> None:
    features, labels = gaussian(100, 0)
    np.savez(tmp_path / "held.npz", x=features["x"], label=labels)
    settings = BuildSettings(trainable=("*",), loss="cross-entropy", optimisers=("sgd",))
    bundle = build_bundle(dense_net((6, 4, 3), "x", 0), tmp_path / "held.npz", settings, tmp_path / "bundle")
    assert label_free_calibration(bundle) is None
