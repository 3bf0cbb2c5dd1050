"""Training modes on real processes: the head on cached embeddings, and personal tensors; all traffic is heard."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.ota.startup import startup
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.serving_alone import MODELS_FOLDER
from edge_agent.training.embedding_cache import EMBEDDINGS_FILE
from edge_agent.wire.messages import TrainResult
from edge_agent.wire.release import unpack
from edge_agent.wire.tensors import Weights, decode_weights, read_safetensors
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift, toy_bundle
from tests.e2e.wiretap import Wiretap

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped"), "gw3": Drift("none")}
ENOUGH = 60


def _released(store: Store) -> bool:
    return [adaptation.status for adaptation in store.adaptations.all()][:1] == [DONE]


def _served(store: Store, gateway: str) -> tuple[int, int]:
    """Right and labelled holdout samples on weights after the first."""
    counts = [entry for entry in store.counts.all(gateway) if entry.cohort != "root" or entry.weights_version > 1]
    return sum(entry.right for entry in counts), sum(entry.labelled for entry in counts)


def _accuracy(store: Store, gateway: str) -> float:
    right, labelled = _served(store, gateway)
    return right / labelled


def _served_enough(store: Store) -> bool:
    return _released(store) and all(_served(store, gateway)[1] >= ENOUGH for gateway in ("gw1", "gw2"))


def _released_weights(fleet: ToyFleet, store: Store) -> list[Weights]:
    rounds = store.adaptations.rounds(store.adaptations.all()[0].id)
    return [decode_weights(store.blobs.read(digest)) for record in rounds for digest in record.weights.values()]


def _number(result: TrainResult, name: str) -> float:
    value = result.metrics[name]
    assert isinstance(value, int | float)
    return value


def _computed(result: TrainResult) -> float:
    return _number(result, "embeddings-computed")


def _embedded(result: TrainResult) -> float:
    return _number(result, "num-examples") + _number(result, "proof-examples")


def _tensors(update: bytes) -> set[str]:
    return set(read_safetensors(unpack(update, 10**7, "update"), "update"))


@dataclass(frozen=True)
class _Repaired:
    """What a fleet whose two gateways drifted came to, and all that went over the broker meanwhile."""

    weights: list[Weights]
    accuracies: list[float]
    updates: list[tuple[TrainResult, bytes]]
    traffic: bytes


def _repaired(directory: Path, mosquitto: Mosquitto, bundle: Bundle, **asked: Any) -> _Repaired:
    fleet = ToyFleet(directory, mosquitto, DRIFTS, rounds=3, bundle=bundle.path, **asked)
    with Wiretap(mosquitto) as tap:
        try:
            fleet.start()
            fleet.wait("a release, and holdout samples on it", _served_enough, timeout_s=200)
            with fleet.store() as store:
                weights = _released_weights(fleet, store)
                accuracies = [_accuracy(store, gateway) for gateway in ("gw1", "gw2")]
        finally:
            statuses = fleet.stop()
    assert set(statuses.values()) == {0}
    updates = tap.updates()
    assert len(updates) >= 6
    return _Repaired(weights, accuracies, updates, b"".join(payload for _, payload in tap.heard))


def _as_built(weights: list[Weights], initial: Weights, names: Sequence[str]) -> bool:
    return all(trained[name].tobytes() == initial[name].tobytes() for trained in weights for name in names)


@pytest.mark.long
def test_a_fleet_trains_the_head_on_embeddings_computed_once(tmp_path: Path, mosquitto: Mosquitto) -> None:
    bundle = toy_bundle(tmp_path / "bundles", head=True)
    seen = _repaired(tmp_path, mosquitto, bundle, training_graph="head-adam", learning_rate=0.05, max_samples=5000)
    initial = bundle.initial_weights()
    assert _as_built(seen.weights, initial, ("w1", "b1"))
    assert any((trained["w2"] != initial["w2"]).any() for trained in seen.weights)
    assert min(seen.accuracies) > 0.8, seen.accuracies
    updates = seen.updates
    assert all(_tensors(update) == {"w2", "b2"} for _, update in updates)
    assert all(_computed(result) == _embedded(result) for result, _ in updates if result.round == 1)
    assert all(_computed(result) < _embedded(result) for result, _ in updates if result.round == 3)
    assert (tmp_path / "gateways" / "gw1" / "data" / EMBEDDINGS_FILE).is_file()


@pytest.mark.long
def test_personal_tensors_are_trained_served_and_kept_and_never_leave(tmp_path: Path, mosquitto: Mosquitto) -> None:
    bundle = toy_bundle(tmp_path / "bundles", personal=["w1", "b1"])
    seen = _repaired(tmp_path, mosquitto, bundle)
    initial = bundle.initial_weights()
    assert _as_built(seen.weights, initial, ("w1", "b1"))
    assert min(seen.accuracies) > 0.85, seen.accuracies
    own = {gateway: _own(tmp_path, bundle.path, gateway) for gateway in ("gw1", "gw2")}
    for values in own.values():
        assert (values["w1"] != initial["w1"]).any()
    assert (own["gw1"]["w1"] != own["gw2"]["w1"]).any()
    assert all(_tensors(update) == {"w2", "b2"} for _, update in seen.updates)
    for values in own.values():
        for name in ("w1", "b1"):
            for form in (values[name], values[name] - initial[name]):
                assert form.tobytes()[:32] not in seen.traffic
                assert form.astype(np.float16).tobytes()[:32] not in seen.traffic


def _own(directory: Path, bundle: Path, gateway: str) -> Weights:
    """What a start of this gateway would serve."""
    folder = directory / "gateways" / gateway
    return startup(WeightsStore(folder / "data" / MODELS_FOLDER, load_bundle(bundle))).loaded.weights
