from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.training.local_round import LocalRound, run_local_round
from edge_agent.training.personal import parted, with_personal
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import Weights, encode_weights
from tests.training.jobs import training_job
from tests.training.personal_bundle import personal_bundle
from tests.training.tiny_bundle import CLASSES, tiny_samples


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return personal_bundle(tmp_path_factory.mktemp("bundle") / "personal")


def values_file(folder: Path, values: Weights) -> Path:
    data = encode_weights(values)
    path = folder / f"{sha256_hex(data)}.safetensors"
    path.write_bytes(data)
    return path


def test_what_weights_from_outside_hold_in_personal_tensors_is_dropped(personal: Bundle, tmp_path: Path) -> None:
    foreign = {**personal.initial_weights(), "b": np.full(CLASSES, 9, np.float32)}
    assert with_personal(personal, foreign, None)["b"].tolist() == [0, 0, 0]
    own = values_file(tmp_path, {"b": np.full(CLASSES, 2, np.float32)})
    assert with_personal(personal, foreign, own)["b"].tolist() == [2, 2, 2]
    assert foreign["b"].tolist() == [9, 9, 9]


def test_a_bundle_without_personal_tensors_takes_weights_as_they_are(bundle: Bundle) -> None:
    weights = bundle.initial_weights()
    assert with_personal(bundle, weights, None) is weights


@pytest.mark.parametrize("how", ["damaged", "unfit", "nan"])
def test_values_that_cannot_be_used_are_named(personal: Bundle, tmp_path: Path, how: str) -> None:
    wrong = {"unfit": {"w": np.zeros(1, np.float32)}, "nan": {"b": np.full(CLASSES, np.nan, np.float32)}}
    path = values_file(tmp_path, wrong.get(how, {"b": np.zeros(CLASSES, np.float32)}))
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    named = {"damaged": "damaged", "unfit": "missing tensor 'b'", "nan": "'b' is not finite"}[how]
    with pytest.raises(DataError, match=named):
        with_personal(personal, personal.initial_weights(), path)


def test_a_round_trains_both_sends_what_is_shared_and_keeps_what_is_personal(
    personal: Bundle, bundle: Bundle, tmp_path: Path
) -> None:
    features, labels = tiny_samples(60)
    base: Weights = {**personal.initial_weights(), "b": np.array([0.5, -0.5, 0.25], np.float32)}
    job = training_job(personal, tmp_path / "none.db")
    made = run_local_round(personal, base, features, labels, job)
    whole = run_local_round(bundle, base, features, labels, training_job(bundle, tmp_path / "none.db"))
    assert isinstance(made, LocalRound)
    assert isinstance(whole, LocalRound)
    assert set(made.delta) == {"w"}
    assert made.delta["w"].tobytes() == whole.delta["w"].tobytes()
    assert set(made.personal) == {"b"}
    np.testing.assert_allclose(made.personal["b"] - base["b"], whole.delta["b"], atol=1e-7)
    assert made.metrics["update-norm"] == pytest.approx(float(np.linalg.norm(made.delta["w"])), rel=1e-6)


def test_a_graph_that_trains_only_the_shared_leaves_no_personal_values(personal: Bundle) -> None:
    graph = personal.training_graph("sgd").model_copy(update={"trainable": ["w"]})
    weights = personal.initial_weights()
    delta, kept = parted(personal, graph, weights, weights)
    assert set(delta) == {"w"}
    assert kept == {}


def test_a_graph_that_trains_only_personal_tensors_has_nothing_to_send(personal: Bundle) -> None:
    graph = personal.training_graph("sgd").model_copy(update={"trainable": ["b"]})
    weights = personal.initial_weights()
    with pytest.raises(DataError, match="nothing to send"):
        parted(personal, graph, weights, weights)
