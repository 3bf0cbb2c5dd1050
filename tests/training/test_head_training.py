"""Rounds of the head alone, on embeddings that pass the frozen part once."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.head import HeadModel
from edge_agent.model.inference import InferenceModel
from edge_agent.training.embedding_cache import EmbeddingCache
from edge_agent.training.head_training import Embedder, frozen_digest, is_of_head, scored_model
from edge_agent.training.job import TrainingJob
from edge_agent.training.local_round import LocalRound, run_local_round
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import Array, classified, conv1d, save_npz
from tests.training.jobs import training_job
from tests.training.tiny_bundle import tiny_bundle

IDS = [f"s{number}" for number in range(100)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    data = save_npz(folder / "c.npz", **classified(conv1d(), 100))
    settings = BuildSettings(
        trainable=["*"],
        loss="cross-entropy",
        optimisers=["sgd", "adam"],
        subsets={"part": ["d.*"]},
        head=True,
    )
    return build_bundle(conv1d(), data, settings, folder / "bundle")


@pytest.fixture(scope="module")
def data() -> dict[str, Array]:
    return classified(conv1d(), len(IDS), seed=9)


def changed(weights: Weights, *names: str) -> Weights:
    return {name: tensor + np.float32(0.25 if name in names else 0) for name, tensor in weights.items()}


def job_of(bundle: Bundle, graph: str) -> TrainingJob:
    return training_job(bundle, Path("none.db"), training_graph=graph, epochs=5, batch_size=16, learning_rate=0.05)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_round_of_the_head_is_a_round_of_that_subset_in_the_whole(
    bundle: Bundle, data: dict[str, Array], optimiser: str
) -> None:
    base = bundle.initial_weights()
    embedded = Embedder(bundle, base, EmbeddingCache(None)).embed(IDS, {"x": data["x"]})
    whole = run_local_round(bundle, base, {"x": data["x"]}, data["label"], job_of(bundle, f"part-{optimiser}"))
    head = run_local_round(bundle, base, embedded.features, data["label"], job_of(bundle, f"head-{optimiser}"))
    assert isinstance(whole, LocalRound)
    assert isinstance(head, LocalRound)
    assert set(head.delta) == set(whole.delta) == {"d.w", "d.b"}
    for name, tensor in whole.delta.items():
        np.testing.assert_allclose(head.delta[name], tensor, atol=2e-5 * float(np.abs(tensor).max()))
    for name in ("clma-loss", "loss-after", "update-norm"):
        assert head.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-5)
    assert head.metrics["loss-after"] < head.metrics["clma-loss"]


def test_embeddings_are_those_of_the_whole_however_they_are_got(
    bundle: Bundle, data: dict[str, Array], tmp_path: Path
) -> None:
    base, cache = bundle.initial_weights(), EmbeddingCache(tmp_path / "cache")
    wanted = InferenceModel(bundle, base).run({"x": data["x"]})["r3"]
    first = Embedder(bundle, base, cache)
    half = first.embed(IDS[:50], {"x": data["x"][:50]})
    assert half.computed == 50
    assert first.remember([(IDS[:50], half)])
    later = Embedder(bundle, changed(base, "d.w", "d.b"), cache).embed(IDS[::-1], {"x": data["x"][::-1]})
    assert later.computed == 50
    np.testing.assert_allclose(later.features["r3"], wanted[::-1], rtol=1e-5, atol=1e-6)


def test_embeddings_of_other_frozen_weights_are_computed_again(
    bundle: Bundle, data: dict[str, Array], tmp_path: Path
) -> None:
    base, cache = bundle.initial_weights(), EmbeddingCache(tmp_path / "cache")
    embedder = Embedder(bundle, base, cache)
    embedder.remember([(IDS, embedder.embed(IDS, {"x": data["x"]}))])
    assert Embedder(bundle, changed(base, "d.w"), cache).embed(IDS, {"x": data["x"]}).computed == 0
    for name in ("a.w", "c.b"):
        other = changed(base, name)
        assert frozen_digest(bundle, other) != frozen_digest(bundle, base)
        again = Embedder(bundle, other, cache).embed(IDS, {"x": data["x"]})
        assert again.computed == len(IDS)
        wanted = InferenceModel(bundle, other).run({"x": data["x"]})["r3"]
        np.testing.assert_allclose(again.features["r3"], wanted, rtol=1e-5, atol=1e-6)


def test_a_disk_that_refuses_costs_time_only(bundle: Bundle, data: dict[str, Array], tmp_path: Path) -> None:
    embedder = Embedder(bundle, bundle.initial_weights(), EmbeddingCache(tmp_path))
    embedded = embedder.embed(IDS, {"x": data["x"]})
    assert not embedder.remember([(IDS, embedded)])
    assert embedded.computed == len(IDS)


def test_no_sample_is_no_embedding(bundle: Bundle, data: dict[str, Array], tmp_path: Path) -> None:
    embedder = Embedder(bundle, bundle.initial_weights(), EmbeddingCache(tmp_path / "cache"))
    embedded = embedder.embed([], {"x": data["x"][:0]})
    assert (embedded.computed, embedded.features["r3"].shape) == (0, (0, 10))
    assert embedder.remember([([], embedded)])


def test_an_embedding_that_is_not_finite_is_given_so_and_left_out_by_the_round(
    bundle: Bundle, data: dict[str, Array]
) -> None:
    x = data["x"].copy()
    x[7] = np.inf
    embedder = Embedder(bundle, bundle.initial_weights(), EmbeddingCache(None))
    embedded = embedder.embed(IDS, {"x": x}).features
    assert np.flatnonzero(~np.isfinite(embedded["r3"]).all(axis=1)).tolist() == [7]
    job = training_job(bundle, Path("unused.db"), training_graph="head-sgd", learning_rate=0.01)
    outcome = run_local_round(bundle, bundle.initial_weights(), embedded, data["label"], job)
    assert isinstance(outcome, LocalRound)
    assert (outcome.metrics["unusable-examples"], outcome.metrics["num-examples"]) == (1, len(IDS) - 1)


def test_samples_that_do_not_fit_are_named(bundle: Bundle, data: dict[str, Array]) -> None:
    embedder = Embedder(bundle, bundle.initial_weights(), EmbeddingCache(None))
    with pytest.raises(DataError, match="input 'x' has shape"):
        embedder.embed(IDS, {"x": data["x"][:, :, :5]})


def test_a_model_is_scored_on_what_its_graph_is_fed(bundle: Bundle) -> None:
    weights = bundle.initial_weights()
    assert is_of_head(bundle, "head-sgd")
    assert not is_of_head(bundle, "part-sgd")
    assert isinstance(scored_model(bundle, "head-sgd", weights, threads=1), HeadModel)
    assert isinstance(scored_model(bundle, "part-sgd", weights, threads=1), InferenceModel)


def test_a_bundle_without_a_head_is_named_with_the_way_out(tmp_path: Path) -> None:
    plain = tiny_bundle(tmp_path / "tiny")
    with pytest.raises(DataError, match="'tiny' has no head"):
        HeadModel(plain, plain.initial_weights())
    with pytest.raises(DataError, match="'tiny' has no head"):
        Embedder(plain, plain.initial_weights(), EmbeddingCache(None))
