import numpy as np
import pytest

from edge_agent.drift.label_free import SMOOTHING, LabelFreeCalibration, calibrate_label_free
from edge_agent.errors import DataError
from edge_agent.wire.tensors import encode_weights


def test_a_calibration_comes_back_from_its_file() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    logits, embeddings = 3 * np.eye(3)[labels] + rng.normal(size=(300, 3)), np.eye(3)[labels].reshape(300, 3, 1)
    found = calibrate_label_free(logits, embeddings, labels, rng)
    assert found.class_prior.sum() == pytest.approx(1)
    again = LabelFreeCalibration.decode(found.encode())
    assert again.class_prior == pytest.approx(found.class_prior, abs=1e-6)
    assert again.uncertainty is not None
    assert again.representation is not None
    assert found.uncertainty is not None
    assert again.uncertainty.spread == pytest.approx(found.uncertainty.spread, rel=1e-6)
    assert again.encode() == found.encode()
    assert (again.scaled.smoothing, again.scaled.uncertainty) == (SMOOTHING, again.uncertainty)


def test_a_model_without_classes_or_embedding_has_what_it_has() -> None:
    rng = np.random.default_rng(0)
    targets = rng.normal(size=50)
    found = calibrate_label_free(None, np.stack([targets, np.ones(50)], 1), targets, rng)
    assert (len(found.class_prior), found.uncertainty) == (0, None)
    assert LabelFreeCalibration.decode(found.encode()).representation is not None
    assert LabelFreeCalibration.decode(LabelFreeCalibration().encode()).scaled.representation is None


@pytest.mark.parametrize(
    "payload",
    [
        b"no tensors",
        encode_weights({}),
        encode_weights({"class_prior": np.array([np.nan], np.float32)}),
        encode_weights({"class_prior": np.ones(2, np.float32), "uncertainty": np.ones(3, np.float32)}),
        encode_weights({"class_prior": np.ones(2, np.float32), "uncertainty": np.array([1, 0], np.float32)}),
    ],
)
def test_a_damaged_file_is_refused(payload: bytes) -> None:
    with pytest.raises(DataError):
        LabelFreeCalibration.decode(payload)
