"""The reliability of an update, in every mode of training."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.training.embedding_cache import EmbeddingCache
from edge_agent.training.head_training import Embedder, is_of_head
from edge_agent.training.job import WorkFailed
from edge_agent.training.label_free_round import run_label_free_round
from edge_agent.training.local_round import LocalRound, run_local_round
from edge_agent.training.split_half import SPLIT_HALF_KEY
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import Array, classified, conv1d, save_npz
from tests.training.jobs import training_job
from tests.training.label_free_bundle import gaussian, label_free_bundle
from tests.training.personal_bundle import personal_bundle
from tests.training.tiny_bundle import tiny_samples, tiny_weights

SAMPLES = 96


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    data = save_npz(folder / "c.npz", **classified(conv1d(), 100))
    settings = BuildSettings(
        trainable=["*"], loss="cross-entropy", optimisers=["momentum", "adam"], subsets={"part": ["d.*"]}, head=True
    )
    return build_bundle(conv1d(), data, settings, folder / "bundle")


def agreed(asked: LocalRound | WorkFailed, plain: LocalRound | WorkFailed) -> float:
    """The figure, which changes nothing else."""
    assert isinstance(asked, LocalRound)
    assert isinstance(plain, LocalRound)
    assert set(asked.delta) == set(plain.delta)
    assert all((asked.delta[name] == plain.delta[name]).all() for name in plain.delta)
    assert SPLIT_HALF_KEY not in plain.metrics
    return asked.metrics[SPLIT_HALF_KEY]


@pytest.mark.parametrize(
    ("graph", "schedule"),
    [
        ("momentum", "constant"),
        ("adam", "constant"),
        ("part-adam", "constant"),
        ("head-adam", "constant"),
        ("adam", "fed-ade"),
    ],
)
def test_halves_of_a_labelled_round_agree_where_there_is_something_to_learn(
    bundle: Bundle, graph: str, schedule: str
) -> None:
    data: dict[str, Array] = classified(conv1d(), SAMPLES, seed=9)
    base, features = bundle.initial_weights(), {"x": data["x"]}
    if is_of_head(bundle, graph):
        embedder = Embedder(bundle, base, EmbeddingCache(None))
        features = dict(embedder.embed([str(row) for row in range(SAMPLES)], features).features)
    job = training_job(
        bundle, Path("none.db"), training_graph=graph, epochs=3, batch_size=16, learning_rate=0.01, schedule=schedule
    )
    jobs = (job.model_copy(update={"split_half": asked}) for asked in (True, False))
    figure = agreed(*(run_local_round(bundle, base, features, data["label"], one) for one in jobs))
    assert 0.1 < figure <= 1.0


def test_only_what_is_sent_is_compared(tmp_path: Path) -> None:
    personal = personal_bundle(tmp_path / "personal", personal="b")
    features, labels = tiny_samples(SAMPLES)
    job = training_job(personal, Path("none.db"))
    jobs = (job.model_copy(update={"split_half": asked}) for asked in (True, False))
    rounds = [run_local_round(personal, tiny_weights(), features, labels, one) for one in jobs]
    assert 0.1 < agreed(*rounds) <= 1.0
    assert all(isinstance(one, LocalRound) and set(one.delta) == {"w"} for one in rounds)


def test_halves_of_a_round_without_labels_agree(tmp_path: Path) -> None:
    adaptable = label_free_bundle(tmp_path / "net")
    features, _ = gaussian(320, 5, moved=1.0)
    job = training_job(
        adaptable, Path("none.db"), training_graph="entropy-sgd", learning_rate=0.1, batch_size=32, epochs=3
    )
    base = adaptable.initial_weights()
    jobs = (job.model_copy(update={"split_half": asked}) for asked in (True, False))
    figure = agreed(*(run_label_free_round(adaptable, base, features, one) for one in jobs))
    assert 0.1 < figure <= 1.0


def test_a_round_cut_short_has_no_time_for_halves(bundle: Bundle) -> None:
    class OneEpoch:
        def stepped(self, place: object) -> bool:
            return getattr(place, "epochs", 0) < 1

    data = classified(conv1d(), SAMPLES, seed=9)
    job = training_job(bundle, Path("none.db"), training_graph="adam", epochs=3, split_half=True, learning_rate=0.01)
    outcome = run_local_round(
        bundle, bundle.initial_weights(), {"x": data["x"]}, np.asarray(data["label"]), job, watch=OneEpoch()
    )
    assert isinstance(outcome, LocalRound)
    assert outcome.metrics["epochs-done"] == 1.0
    assert SPLIT_HALF_KEY not in outcome.metrics
