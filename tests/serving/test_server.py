import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edge_agent.errors import DataError, RejectedUpdate
from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import ModelServer, Served
from edge_agent.wire.manifest import MonitorSpec, OutputSpec
from edge_agent.wire.tensors import Weights
from tests.training.tiny_bundle import FEATURES, tiny_bundle, tiny_samples, tiny_weights

DIGESTS = ("a" * 64, "b" * 64)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    return tiny_bundle(folder / "tiny")


@pytest.fixture
def server(bundle: Bundle) -> ModelServer:
    return ModelServer(bundle, tiny_weights(0), DIGESTS[0], 1, "root")


def batch_of(x: NDArray[np.float32]) -> SampleBatch:
    count = len(x)
    return SampleBatch(
        ids=[f"s{index}" for index in range(count)],
        times=[float(index) for index in range(count)],
        features={"x": x},
    )


def logits(weights: Weights, x: NDArray[np.float32]) -> NDArray[np.float32]:
    product: NDArray[np.float32] = x @ weights["w"] + weights["b"]
    return product


def test_predictions_name_what_made_them(server: ModelServer, bundle: Bundle) -> None:
    x = tiny_samples(6)[0]["x"]
    served = server.process(batch_of(x))
    np.testing.assert_allclose(served.outputs, logits(tiny_weights(0), x), rtol=1e-5)
    assert (served.bundle, served.weights, served.version, served.cohort) == (bundle.digest, DIGESTS[0], 1, "root")


def test_a_swap_serves_the_new_weights_and_returns_the_old(server: ModelServer, bundle: Bundle) -> None:
    x = tiny_samples(6)[0]["x"]
    prepared = server.prepare(bundle, tiny_weights(5), DIGESTS[1], 2, "c1")
    assert server.active.weights == DIGESTS[0]
    former = server.swap(prepared)
    served = server.process(batch_of(x))
    np.testing.assert_allclose(served.outputs, logits(tiny_weights(5), x), rtol=1e-5)
    assert (served.weights, served.version, served.cohort) == (DIGESTS[1], 2, "c1")
    assert former.weights == DIGESTS[0]
    assert server.active is prepared


def test_a_shadow_run_leaves_the_active_model_alone(server: ModelServer, bundle: Bundle) -> None:
    x = tiny_samples(3)[0]["x"]
    prepared = server.prepare(bundle, tiny_weights(5), DIGESTS[1], 2, "c1")
    shadow = server.shadow(prepared, batch_of(x))
    np.testing.assert_allclose(shadow.outputs, logits(tiny_weights(5), x), rtol=1e-5)
    assert server.process(batch_of(x)).weights == DIGESTS[0]


@pytest.mark.parametrize("fault", ["missing", "extra", "shape", "nan"])
def test_weights_that_do_not_fit_are_rejected_by_name(server: ModelServer, bundle: Bundle, fault: str) -> None:
    weights = tiny_weights(1)
    if fault == "missing":
        del weights["w"]
    elif fault == "extra":
        weights["v"] = weights["w"]
    elif fault == "shape":
        weights["w"] = weights["w"].T.copy()
    else:
        weights["w"][0, 0] = np.nan
    with pytest.raises(RejectedUpdate, match=r"'[wv]'") as caught:
        server.prepare(bundle, weights, DIGESTS[1], 2, "root")
    assert caught.value.reason == "unfit"
    assert server.process(batch_of(tiny_samples(2)[0]["x"])).weights == DIGESTS[0]


def test_weights_that_overflow_on_served_rows_are_rejected(server: ModelServer, bundle: Bundle) -> None:
    server.process(batch_of(tiny_samples(4)[0]["x"] * np.float32(100)))
    huge = {name: np.full_like(tensor, 3e38) for name, tensor in tiny_weights().items()}
    with pytest.raises(RejectedUpdate, match="not finite"):
        server.prepare(bundle, huge, DIGESTS[1], 2, "root")


def test_rows_that_the_active_model_cannot_predict_bar_no_update(server: ModelServer, bundle: Bundle) -> None:
    x = np.full((3, 4), np.nan, np.float32)
    assert np.isnan(server.process(batch_of(x)).outputs).all()
    server.swap(server.prepare(bundle, tiny_weights(2), DIGESTS[1], 2, "root"))
    assert server.active.version == 2


def test_features_that_do_not_fit_are_named(server: ModelServer) -> None:
    with pytest.raises(DataError, match="'x'"):
        server.process(batch_of(np.zeros((2, 5), np.float32)))


def test_every_batch_is_served_by_one_model_while_models_are_swapped(server: ModelServer, bundle: Bundle) -> None:
    x = tiny_samples(4)[0]["x"]
    models = {DIGESTS[0]: tiny_weights(0), DIGESTS[1]: tiny_weights(9)}
    prepared = [server.prepare(bundle, models[digest], digest, 1, "root") for digest in DIGESTS]
    stop = threading.Event()

    def swap_to_and_fro() -> None:
        while not stop.is_set():
            for model in prepared:
                server.swap(model)

    thread = threading.Thread(target=swap_to_and_fro, name="swapper", daemon=True)
    thread.start()
    results: list[Served] = []
    deadline_s = time.monotonic() + 30
    while len(results) < 400 or len({served.weights for served in results}) < 2:
        results.append(server.process(batch_of(x)))
        assert time.monotonic() < deadline_s, "the swapping thread never came to swap"
    stop.set()
    thread.join(5)
    for served in results:
        np.testing.assert_allclose(served.outputs, logits(models[served.weights], x), rtol=1e-5)
    assert {served.weights for served in results} == set(DIGESTS)


def test_an_embedding_comes_with_the_prediction_only_where_a_monitor_asks(tmp_path: Path, bundle: Bundle) -> None:
    weights, x = tiny_weights(0), tiny_samples(5)[0]["x"]
    for monitored in (True, False):
        embedded = _with_embedding(bundle, tmp_path / str(monitored), monitored=monitored)
        served = ModelServer(embedded, weights, DIGESTS[0], 1, "root").process(batch_of(x))
        np.testing.assert_allclose(served.outputs, logits(weights, x), rtol=1e-5)
        if monitored:
            np.testing.assert_array_equal(served.embeddings, np.maximum(x, 0))
            in_runs = ModelServer(embedded, weights, DIGESTS[0], 1, "root").process(batch_of(x), 2)
            np.testing.assert_array_equal(in_runs.embeddings, np.maximum(x, 0))
            np.testing.assert_allclose(in_runs.outputs, logits(weights, x), rtol=1e-5)
        else:
            assert served.embeddings is None
    unwanted = _with_embedding(bundle, tmp_path / "unwanted", monitored=True)
    assert ModelServer(unwanted, weights, DIGESTS[0], 1, "root", embeddings=False).active.embedding is None


def _with_embedding(bundle: Bundle, path: Path, *, monitored: bool) -> Bundle:
    """The tiny net with the features above zero as its embedding, and perhaps a monitor that judges it."""
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    model = onnx.load_from_string(files["infer.onnx"])
    model.graph.node.append(onnx.helper.make_node("Relu", ["x"], ["h"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, ["batch", FEATURES]))
    files["infer.onnx"] = model.SerializeToString()
    embedding = OutputSpec(name="h", dtype="float32", shape=["batch", FEATURES], role="embedding")
    monitor = MonitorSpec(parameters={}, batch_size=32, false_alarm_rate=1e-3)
    update = {
        "outputs": [*bundle.manifest.outputs, embedding],
        "monitors": {"label-free": monitor} if monitored else {},
        "files": file_digests(files),
    }
    return write_bundle(path, bundle.manifest.model_copy(update=update), files)
