"""The overlay: it follows, it stays near the release, it goes back, and a restart changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.training.evaluation import evaluate
from edge_agent.training.online_adapter import AdapterSettings, OnlineAdapter
from tests.training.label_free_bundle import CLASSES, gaussian, label_free_bundle

RULES = AdapterSettings("entropy-sgd", 0.01, 0.3, steps=2)
MOVED = 1.2


@pytest.fixture(scope="module")
def adaptable(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return label_free_bundle(tmp_path_factory.mktemp("online") / "net")


def _adapter(bundle: Bundle, rules: AdapterSettings = RULES) -> OnlineAdapter:
    return OnlineAdapter(bundle, bundle.initial_weights(), rules)


def _same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(left[name], right[name]) for name in right)


def test_it_follows_a_stream_whose_features_move(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable)
    for moment in range(30):
        features, _ = gaussian(32, moment, moved=MOVED * min(1, moment / 10))
        done = adapter.adapt(features)
        assert RULES.minimum <= done.rate <= RULES.maximum + 1e-9
        assert 0 < done.distance <= RULES.farthest
    features, labels = gaussian(2000, 99, moved=MOVED)
    found = [
        evaluate(InferenceModel(adaptable, weights), adaptable.manifest, features, labels).accuracy or 0.0
        for weights in (adaptable.initial_weights(), adapter.weights())
    ]
    assert found[1] > found[0] + 0.03
    assert adapter.batches == 30


def test_a_reset_is_the_release_bit_for_bit(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable)
    untouched = adapter.digest
    adapter.adapt(gaussian(32, 0)[0])
    assert adapter.digest != untouched
    adapter.reset()
    assert (adapter.digest, adapter.batches, adapter.distance) == (untouched, 0, 0.0)
    assert _same(adapter.weights(), adaptable.initial_weights())


def test_a_restart_goes_on_bit_for_bit(adaptable: Bundle) -> None:
    first = _adapter(adaptable)
    for moment in range(4):
        first.adapt(gaussian(32, moment, moved=0.1 * moment)[0])
    second = _adapter(adaptable)
    second.restore(first.save())
    for moment in range(4, 8):
        features = gaussian(32, moment, moved=0.1 * moment)[0]
        assert first.adapt(features) == second.adapt(features)
    assert _same(first.weights(), second.weights())
    assert first.save() == second.save()


def test_it_never_goes_farther_than_it_may(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable, AdapterSettings("entropy-sgd", 5.0, 5.0, steps=5, farthest=0.05))
    for moment in range(10):
        done = adapter.adapt(gaussian(32, moment, moved=3)[0])
        assert done.distance <= 0.05 + 1e-9
        assert adapter.distance <= 0.05 * (1 + 1e-5)
        assert all(np.isfinite(tensor).all() for tensor in adapter.weights().values())


def test_small_and_spoilt_batches_are_looked_at_and_not_trained_on(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable)
    spoilt = np.full((32, 6), np.nan, np.float32)
    for x in (np.zeros((0, 6), np.float32), np.zeros((1, 6), np.float32), spoilt):
        assert adapter.adapt({"x": x}).rate == 0.0
    assert (adapter.batches, adapter.distance) == (0, 0.0)
    with pytest.raises(DataError, match="'x'"):
        adapter.adapt({"x": np.zeros((8, 5), np.float32)})


def test_labels_that_say_it_is_worse_take_it_back(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable, AdapterSettings("entropy-sgd", 1.0, 1.0, steps=5))
    shares = np.array([0.95, 0.03, 0.02])
    for moment in range(5):
        adapter.adapt(gaussian(64, moment, shares)[0])  # it is told that the classes are as they were, which is wrong
    assert adapter.judge(*gaussian(300, 50, shares)).made_worse
    assert adapter.distance == 0.0
    assert not adapter.judge(*gaussian(300, 51, shares)).made_worse


def test_shares_are_estimated_where_it_is_said_so(adaptable: Bundle) -> None:
    shares = np.array([0.95, 0.03, 0.02])
    distances = []
    for label_shift in (False, True):
        adapter = _adapter(adaptable, AdapterSettings("entropy-sgd", 0.3, 0.3, steps=5, label_shift=label_shift))
        for moment in range(5):
            adapter.adapt(gaussian(64, moment, shares)[0])
        distances.append(adapter.distance)
    assert distances[1] < distances[0]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 20), st.floats(-100, 100), st.booleans()), min_size=1, max_size=5))
def test_whatever_comes_it_is_finite_near_and_repeats(
    adaptable: Bundle, batches: list[tuple[int, float, bool]]
) -> None:
    adapters = [_adapter(adaptable, AdapterSettings("entropy-sgd", 0.0, 2.0)) for _ in range(2)]
    for number, (count, moved, restarted) in enumerate(batches):
        features = gaussian(count, number, moved=moved)[0]
        for adapter in adapters:
            adapter.adapt(features)
        if restarted:
            saved = adapters[1].save()
            adapters[1] = _adapter(adaptable, AdapterSettings("entropy-sgd", 0.0, 2.0))
            adapters[1].restore(saved)
    weights = adapters[0].weights()
    assert all(np.isfinite(tensor).all() for tensor in weights.values())
    assert adapters[0].distance <= 0.5 * (1 + 1e-5)
    assert _same(weights, adapters[1].weights())


def test_what_is_no_overlay_of_this_release_is_refused_and_nothing_changes(adaptable: Bundle) -> None:
    adapter = _adapter(adaptable)
    adapter.adapt(gaussian(32, 0)[0])
    saved, before = adapter.save(), adapter.digest
    other = {name: value + np.float32(0.5) for name, value in adaptable.initial_weights().items()}
    with pytest.raises(DataError, match="another release"):
        OnlineAdapter(adaptable, other, RULES).restore(saved)
    for damaged in (b"", saved[:40], saved[:-3], b"\x05\0\0\0{}xx" + saved):
        with pytest.raises(DataError, match=r"online adapter|fed-ade"):
            adapter.restore(damaged)
    assert adapter.digest == before


def test_what_cannot_be_followed_is_refused_at_the_start(adaptable: Bundle) -> None:
    with pytest.raises(DataError, match="takes labels"):
        _adapter(adaptable, AdapterSettings("sgd", 0.1, 0.1))
    for wrong in ({"minimum": -1.0}, {"maximum": 0.0, "minimum": 0.0}, {"steps": 0}, {"farthest": 0.0}):
        with pytest.raises(DataError, match="online adapter"):
            AdapterSettings(**{"training_graph": "entropy-sgd", "minimum": 0.1, "maximum": 0.2, **wrong})  # type: ignore[arg-type]  # wrong on purpose
    assert adaptable.manifest.classes == CLASSES
