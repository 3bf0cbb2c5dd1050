"""Personal values and releases, by the updater itself."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle
from edge_agent.samples.record import SampleBatch
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import Weights, encode_weights
from tests.ota.fleet_maps import FleetMaps
from tests.ota.gateway import GatewayParts, maps_of
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.training.personal_bundle import personal_bundle
from tests.training.tiny_bundle import CLASSES, FEATURES, tiny_samples, tiny_weights


@pytest.fixture(scope="module", params=["b", "w"])
def bundle(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Bundle:
    return personal_bundle(tmp_path_factory.mktemp("bundle") / "personal", personal=request.param)


def personal_name(bundle: Bundle) -> str:
    return next(spec.name for spec in bundle.manifest.trainable if spec.role == "personal")


def values(bundle: Bundle, number: float) -> Weights:
    name = personal_name(bundle)
    return {name: np.full({"b": (CLASSES,), "w": (FEATURES, CLASSES)}[name], number, np.float32)}


def released(bundle: Bundle, seed: int) -> Weights:
    """New shared weights, the bundle's own personal ones."""
    own = personal_name(bundle)
    return {**tiny_weights(seed), "b": np.array([seed, 0, 1], np.float32), own: bundle.initial_weights()[own]}


def release(maps: FleetMaps, bundle: Bundle, seed: int, version: int, adaptation: str | None) -> bytes:
    maps.set_weights("root", encode_weights(released(bundle, seed)), version)
    maps.statements["root"] = maps.statements["root"].model_copy(update={"adaptation": adaptation})
    return maps.advance().payload()


def batch() -> SampleBatch:
    features, _ = tiny_samples(4)
    return SampleBatch(ids=list("abcd"), times=[0.0] * 4, features=dict(features))


def logits(weights: Weights) -> NDArray[np.float32]:
    found: NDArray[np.float32] = batch().features["x"] @ weights["w"] + weights["b"]
    return found


def serves(gateway: GatewayParts, weights: Weights) -> bool:
    return bool(np.allclose(gateway.server.process(batch()).outputs, logits(weights), atol=1e-5))


def a_round(gateway: GatewayParts, bundle: Bundle, adaptation: str, number: float) -> None:
    gateway.store.personal.keep_round(bundle, adaptation, 1, gateway.served.weights, values(bundle, number))


def test_the_release_of_an_adaptation_serves_with_its_rounds_values_and_reports_the_released_digest(
    gateway: GatewayParts, maps: FleetMaps, bundle: Bundle, tmp_path: Path
) -> None:
    a_round(gateway, bundle, "a1", 0.5)
    assert serves(gateway, bundle.initial_weights())
    gateway.receive(release(maps, bundle, 7, 2, "a1"))
    wanted = {**released(bundle, 7), **values(bundle, 0.5)}
    assert serves(gateway, wanted)
    assert gateway.served.weights == sha256_hex(encode_weights(released(bundle, 7)))
    gateway.close()
    again = GatewayParts(tmp_path, maps, bundle)
    assert serves(again, wanted)
    again.close()


def test_a_release_of_no_adaptation_or_another_keeps_the_active_values(
    gateway: GatewayParts, maps: FleetMaps, bundle: Bundle
) -> None:
    a_round(gateway, bundle, "a1", 0.5)
    gateway.receive(release(maps, bundle, 7, 2, None))
    assert serves(gateway, released(bundle, 7))
    gateway.receive(release(maps, bundle, 8, 3, "a2"))
    assert serves(gateway, released(bundle, 8))


def test_a_revert_serves_with_the_values_of_then(gateway: GatewayParts, maps: FleetMaps, bundle: Bundle) -> None:
    for number, adaptation in ((7, "a1"), (8, "a2")):
        a_round(gateway, bundle, adaptation, number / 10)
        gateway.receive(release(maps, bundle, number, number - 5, adaptation))
        assert serves(gateway, {**released(bundle, number), **values(bundle, number / 10)})
    gateway.receive(release(maps, bundle, 7, 4, None))
    assert serves(gateway, {**released(bundle, 7), **values(bundle, 0.7)})


def test_values_that_the_model_does_not_do_with_cost_no_release(
    gateway: GatewayParts, maps: FleetMaps, bundle: Bundle
) -> None:
    gateway.server.process(batch())  # from here on predictions must be finite
    huge = values(bundle, 3.4e38) if personal_name(bundle) == "w" else values(bundle, float(np.finfo(np.float32).max))
    gateway.store.personal.keep_round(bundle, "a1", 1, gateway.served.weights, huge)
    gateway.receive(release(maps, bundle, 7, 2, "a1"))
    assert gateway.updater.state == "committed"
    assert gateway.served.version == 2
    assert np.isfinite(gateway.server.process(batch()).outputs).all()
    if personal_name(bundle) == "w":
        assert serves(gateway, released(bundle, 7))
    assert gateway.refusals() == []


@pytest.mark.long
def test_a_power_cut_at_any_step_of_an_activation_leaves_old_with_old_or_new_with_new(tmp_path: Path) -> None:
    bundle = personal_bundle(tmp_path / "bundle")
    maps = maps_of(bundle)
    payload = release(maps, bundle, 7, 2, "a1")
    old = bundle.initial_weights()
    new = {**released(bundle, 7), **values(bundle, 0.5)}

    def act(folder: Path, k: int) -> Power:
        folder.mkdir(parents=True)
        first = GatewayParts(folder, maps, bundle)
        a_round(first, bundle, "a1", 0.5)
        with until_the_cut(k, folder) as power:
            first.receive(payload)
        first.close()
        again = GatewayParts(folder, maps, bundle)
        assert serves(again, new if again.served.version == 2 else old)
        again.receive(payload)
        assert serves(again, new)
        again.close()
        return power

    assert at_every_step(act, tmp_path / "cuts") > 10
