from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_agent.errors import DataError
from edge_agent.model import runs
from edge_agent.model.bundle import file_digests, write_bundle
from edge_agent.model.inference import InferenceModel
from tests.runtime.test_pipeline import looking_up
from tests.training.tiny_bundle import FEATURES, tiny_bundle, tiny_samples, tiny_weights

LONG_S = 60.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> InferenceModel:
    return InferenceModel(tiny_bundle(tmp_path_factory.mktemp("runs") / "tiny"), tiny_weights())


@pytest.mark.parametrize(("rows", "run_rows"), [(1, 1), (15, 1), (40, 1), (67, 2), (100, 3), (70, 64), (5, 8)])
def test_a_long_batch_is_predicted_as_run_by_run(model: InferenceModel, rows: int, run_rows: int) -> None:
    features = tiny_samples(rows)[0]
    (whole,) = model.predict_in_runs(features, ["logits"], run_rows=run_rows, most_s=LONG_S)
    each = [model.predict({"x": features["x"][k : k + run_rows]}) for k in range(0, rows, run_rows)]
    np.testing.assert_array_equal(whole, np.concatenate(each))


def test_features_may_lie_in_memory_in_any_order(model: InferenceModel) -> None:
    x = tiny_samples(48)[0]["x"]
    (whole,) = model.predict_in_runs({"x": np.asfortranarray(x)}, ["logits"], run_rows=1, most_s=LONG_S)
    np.testing.assert_array_equal(whole, np.concatenate([model.predict({"x": x[k : k + 1]}) for k in range(48)]))


def test_what_is_large_is_not_copied_to_be_bound(model: InferenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    features = tiny_samples(64)[0]
    (bound,) = model.predict_in_runs(features, ["logits"], run_rows=1, most_s=LONG_S)
    monkeypatch.setattr(runs, "BOUND_BYTES", 4 * FEATURES - 1)
    monkeypatch.setattr(runs, "BoundRun", None)
    (plain,) = model.predict_in_runs(features, ["logits"], run_rows=1, most_s=LONG_S)
    np.testing.assert_array_equal(plain, bound)


def test_when_the_time_is_up_the_first_rows_are_given(model: InferenceModel) -> None:
    features = tiny_samples(64)[0]
    (first,) = model.predict_in_runs(features, ["logits"], run_rows=2, most_s=0.0)
    np.testing.assert_array_equal(first, model.predict({"x": features["x"][:2]}))


def test_a_run_that_is_refused_is_told(model: InferenceModel, tmp_path: Path) -> None:
    refusing = InferenceModel(looking_up(model.bundle, tmp_path / "looking-up"), tiny_weights())
    features = tiny_samples(40)[0]
    refusing.predict_in_runs(features, ["logits"], run_rows=1, most_s=LONG_S)
    features["x"][33] = 100.0
    with pytest.raises(DataError, match=r"infer.onnx cannot run"):
        refusing.predict_in_runs(features, ["logits"], run_rows=1, most_s=LONG_S)


def test_an_output_without_a_row_a_sample_is_refused(model: InferenceModel, tmp_path: Path) -> None:
    files = {name: model.bundle.read(name) for name in model.bundle.manifest.files}
    graph = onnx.load_from_string(files["infer.onnx"])
    for node in graph.graph.node:
        node.output[:] = ["each" if name == "logits" else name for name in node.output]
    graph.graph.node.append(onnx.helper.make_node("ReduceMean", ["each"], ["logits"], axes=[0]))
    files["infer.onnx"] = graph.SerializeToString()
    manifest = model.bundle.manifest.model_copy(update={"files": file_digests(files)})
    averaging = InferenceModel(write_bundle(tmp_path / "averaging", manifest, files), tiny_weights())
    with pytest.raises(DataError, match=r"predictions for 2 samples have shape \[1, 3\]"):
        averaging.predict_in_runs(tiny_samples(6)[0], ["logits"], run_rows=2, most_s=LONG_S)
