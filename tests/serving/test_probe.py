import numpy as np
import pytest

from edge_agent.errors import RejectedUpdate
from edge_agent.serving.probe import Probe, check_predictions, probe_features
from edge_agent.wire.manifest import TensorSpec

FIXED = [TensorSpec(name="x", dtype="float32", shape=["n", 2, 3]), TensorSpec(name="k", dtype="int64", shape=["n"])]
FREE = [TensorSpec(name="x", dtype="float32", shape=["n", "time"])]


def test_without_served_rows_zeros_of_the_right_shape_and_type_are_tried() -> None:
    probe = probe_features(FIXED, None)
    assert probe is not None
    assert {name: (array.shape[1:], array.dtype) for name, array in probe.features.items()} == {
        "x": ((2, 3), np.dtype("float32")),
        "k": ((), np.dtype("int64")),
    }
    assert not probe.live


def test_an_unknown_size_means_no_probe_until_rows_were_served() -> None:
    assert probe_features(FREE, None) is None
    rows = {"x": np.ones((2, 7), np.float32)}
    assert probe_features(FREE, rows) == Probe(rows, 2, live=True)


@pytest.mark.parametrize(
    "recent",
    [
        {"x": np.ones((2, 2, 3), np.float64), "k": np.ones(2, np.int64)},
        {"x": np.ones((2, 2, 4), np.float32), "k": np.ones(2, np.int64)},
        {"x": np.ones((2, 2, 3), np.float32)},
    ],
)
def test_served_rows_that_do_not_fit_another_bundle_give_way_to_zeros(recent: dict[str, np.ndarray]) -> None:
    probe = probe_features(FIXED, recent)
    assert probe is not None
    assert not probe.live


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_predictions_must_be_a_row_a_sample(shape: tuple[int, ...]) -> None:
    with pytest.raises(RejectedUpdate, match="shape"):
        check_predictions(np.zeros(shape, np.float32), Probe({}, 2, live=False))


def test_only_live_rows_demand_finite_predictions() -> None:
    bad = np.array([[1.0], [np.nan]], np.float32)
    check_predictions(bad, Probe({}, 2, live=False))
    with pytest.raises(RejectedUpdate, match="finite"):
        check_predictions(bad, Probe({}, 2, live=True))
