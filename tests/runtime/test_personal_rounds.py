"""Rounds of a bundle with a personal bias, the worker and the stores real; releases as the updater makes them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.link.download import Downloader
from edge_agent.link.settings import BrokerSettings
from edge_agent.model.bundle import Bundle, write_bundle
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import startup
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.local_work import LocalWork, OperatorLimits
from edge_agent.runtime.orders import OrderFailed
from edge_agent.runtime.personal_rounds import PersonalRounds
from edge_agent.training.job import WorkerLimits
from edge_agent.wire.blobs import make_reference
from edge_agent.wire.messages import TrainResult
from edge_agent.wire.release import unpack
from edge_agent.wire.roles import update_specs
from edge_agent.wire.tensors import decode_weights, encode_weights, read_safetensors
from edge_agent.wire.updates import decode_update
from tests.runtime.desk import GATEWAY, TOPICS
from tests.runtime.local_work_bench import LONG_S, Bench, train_action
from tests.training.personal_bundle import personal_bundle
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import CLASSES


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return personal_bundle(tmp_path_factory.mktemp("bundle") / "personal")


@pytest.fixture(scope="module")
def samples_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("samples")
    store_samples(folder / "samples.db", 100)
    return folder / "samples.db"


class Gateway:
    """Local work beside a weights store, and what serves."""

    def __init__(self, path: Path, bundle: Bundle, samples_db: Path) -> None:
        self.bundle = bundle
        self.bench = Bench(path, bundle, samples_db)
        self.store = WeightsStore(path / "models", bundle)
        self.served = startup(self.store).slot
        broker = BrokerSettings("127.0.0.1", self.bench.port)
        bench = self.bench
        bench.work = LocalWork(
            bench.supervisor,
            Downloader(broker, f"{GATEWAY}.base", TOPICS, bench.blobs, silence_s=0.2),
            bench.blobs,
            bench.uploader,
            bench.outbox,
            limits=OperatorLimits(True, 1, 100, LONG_S, WorkerLimits(nice=0)),
            serving=lambda: bench.serving,
            samples_db=samples_db,
            personal=PersonalRounds(self.store, lambda: self.served),
        )
        self.count = 0

    def round(self, number: int, adaptation: str = "a1") -> TrainResult:
        self.count += 1
        base = self.bench.hold(encode_weights(self.bundle.initial_weights()))
        return self.bench.train(f"c{self.count}", base=base, round=number, adaptation=adaptation)

    def release(self, seed: int, adaptation: str | None) -> None:
        """What the updater does, without a broker."""
        rng = np.random.default_rng(seed)
        weights = {**self.bundle.initial_weights(), "w": rng.normal(size=(4, CLASSES)).astype(np.float32)}
        digest = self.store.add_weights(encode_weights(weights))
        slot = Slot(bundle=self.bundle.digest, weights=digest, cohort="root", version=seed)
        self.store.adopt_personal(slot, self.served, adaptation)
        self.store.point(self.store.pointer().activated(slot).committed())
        self.served = slot

    @property
    def bias(self) -> list[float]:
        """The personal values of what a start would serve now."""
        found = startup(self.store).loaded
        return [round(float(value), 6) for value in found.weights["b"]]


@pytest.fixture
def gateway(tmp_path: Path, bundle: Bundle, samples_db: Path) -> Iterator[Gateway]:
    one = Gateway(tmp_path, bundle, samples_db)
    yield one
    one.bench.close()


def held_update(gateway: Gateway) -> bytes:
    return max((gateway.bench.path / "updates").rglob("update"), key=lambda path: path.stat().st_mtime_ns).read_bytes()


def test_an_update_and_a_reply_hold_nothing_personal(gateway: Gateway, bundle: Bundle) -> None:
    result = gateway.round(1)
    specs = update_specs(bundle.manifest, bundle.training_graph("sgd"))
    assert [spec.name for spec in specs] == ["w"]
    assert set(decode_update(held_update(gateway), "fp32", specs)) == {"w"}
    assert set(read_safetensors(unpack(held_update(gateway), 10**6, "update"), "update")) == {"w"}
    kept = gateway.store.personal.at_round_start(bundle, "a1", 2, gateway.served.weights)["b"]
    assert np.abs(kept).max() > 0.01
    told = result.model_dump_json()
    assert not any(f"{value:.4g}" in told for value in kept.tolist())


def test_rounds_go_on_with_their_values_and_these_serve_with_the_release_that_they_led_to(gateway: Gateway) -> None:
    first = gateway.round(1).update.digest
    second = gateway.round(2).update.digest
    assert first != second  # the same base, samples and seed: the personal values are another
    assert gateway.round(2).update.digest == second  # a round that is asked again begins where it began
    assert gateway.bias == [0, 0, 0]
    gateway.release(2, "a1")
    assert gateway.bias != [0, 0, 0]


def test_a_release_of_another_adaptation_leaves_the_values_alone(gateway: Gateway) -> None:
    gateway.round(1)
    gateway.release(2, "a2")
    assert gateway.bias == [0, 0, 0]


def test_a_fallback_to_earlier_weights_goes_back_to_their_values(gateway: Gateway) -> None:
    gateway.round(1)
    gateway.release(2, "a1")
    newest = gateway.bias
    gateway.round(1, "a2")
    gateway.release(3, "a2")
    assert gateway.bias not in ([0, 0, 0], newest)
    (gateway.store.directory / "weights" / f"{gateway.served.weights}.safetensors").write_bytes(b"damaged")
    assert gateway.bias == newest


def test_an_evaluation_is_of_the_weights_with_what_serves_here(gateway: Gateway, bundle: Bundle) -> None:
    base = gateway.bench.hold(encode_weights(bundle.initial_weights()))
    before = gateway.bench.evaluate("e1", base).metrics["loss"]
    gateway.round(1)
    assert gateway.bench.evaluate("e2", base).metrics["loss"] == before
    gateway.release(2, "a1")
    assert gateway.bench.evaluate("e3", base).metrics["loss"] != before


def test_a_graph_of_personal_tensors_only_is_refused_by_name(
    gateway: Gateway, tmp_path: Path, samples_db: Path
) -> None:
    manifest = gateway.bundle.manifest
    roles = [spec.model_copy(update={"role": "personal"}) for spec in manifest.trainable]
    files = {name: gateway.bundle.read(name) for name in manifest.files}
    whole = write_bundle(tmp_path / "all", manifest.model_copy(update={"trainable": roles}), files)
    (tmp_path / "other").mkdir()
    other = Gateway(tmp_path / "other", whole, samples_db)
    with pytest.raises(OrderFailed, match="'sgd' trains personal tensors only"):
        other.round(1)
    other.bench.close()


@pytest.mark.parametrize("values", [[0, np.nan, 0], [0, np.inf, 0], [0, 0]])
def test_what_is_not_finite_or_does_not_fit_is_not_kept(
    gateway: Gateway, bundle: Bundle, tmp_path: Path, values: list[float]
) -> None:
    made = tmp_path / "personal.safetensors"
    made.write_bytes(encode_weights({"b": np.array(values, np.float32)}))
    action = train_action(bundle, make_reference(b"base")[0])
    with pytest.raises(DataError, match="tensor 'b'"):
        PersonalRounds(gateway.store, lambda: gateway.served).keep(action, made)
    made.write_bytes(b"damaged")
    with pytest.raises(DataError, match="not safetensors"):
        PersonalRounds(gateway.store, lambda: gateway.served).keep(action, made)
    assert gateway.store.personal.at_round_start(bundle, "a1", 9, gateway.served.weights)["b"].tolist() == [0, 0, 0]


def test_weights_in_the_store_stay_as_they_were_released(gateway: Gateway) -> None:
    gateway.round(1)
    gateway.release(2, "a1")
    data = gateway.store.find_weights(gateway.served.weights)
    assert data is not None
    assert decode_weights(data)["b"].tolist() == [0, 0, 0]
