"""Gateways whose update is unfit are refused by name; the round completes without them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import Weights
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import FLEET, ToyFleet
from tests.e2e.toy import Drift
from tests.fleet.scripted import ScriptedGateway

Spoil = Callable[[Weights], Weights]


class FolderBlobs(Mapping[str, bytes]):
    """The bridge's blobs by digest: what a gateway would have downloaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, digest: str) -> bytes:
        found = [path for path in self._folder.rglob("*") if path.is_file() and digest in path.name]
        return found[0].read_bytes()

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in self._folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _small(weights: Weights) -> Weights:
    return {name: np.full_like(tensor, 1e-3) for name, tensor in weights.items()}


def _nan(weights: Weights) -> Weights:
    delta = _small(weights)
    delta["w1"].flat[0] = np.nan
    return delta


def _misshapen(weights: Weights) -> Weights:
    return _small(weights) | {"b2": np.zeros(5, np.float32)}


def _extra(weights: Weights) -> Weights:
    return _small(weights) | {"backdoor": np.zeros(3, np.float32)}


def _huge(weights: Weights) -> Weights:
    return {name: tensor * np.float32(1e6) for name, tensor in _small(weights).items()}


ROGUES: dict[str, tuple[Spoil, int, str]] = {
    "nan": (_nan, 50, "w1"),
    "shape": (_misshapen, 50, "b2"),
    "extra": (_extra, 50, "backdoor"),
    "zero": (_small, 0, "num-examples"),
    "huge": (_huge, 50, "norm"),
}


@pytest.mark.slow
def test_each_bad_update_is_refused_by_name_and_the_round_completes(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(
        tmp_path,
        mosquitto,
        {"gw1": Drift("permuted"), "gw2": Drift("permuted")},
        rounds=1,
        extra=tuple(ROGUES),
    )
    blobs = FolderBlobs(fleet.bridge_dir / "blobs")
    rogues = [_rogue(name, mosquitto, blobs) for name in ROGUES]
    try:
        for rogue in rogues:
            rogue.start()
        fleet.start()
        fleet.wait("the adaptation to end", _ended, timeout_s=180)
        with fleet.store() as store:
            (record,) = store.adaptations.rounds("a1")
            assert {"gw1", "gw2"} <= set(record.replied)
            assert set(record.failed) == set(ROGUES)
            for name, (_, _, culprit) in ROGUES.items():
                assert culprit in str(record.failed[name]), (name, record.failed[name])
    finally:
        for rogue in rogues:
            rogue.stop()
        fleet.stop()


def _rogue(name: str, broker: Mosquitto, blobs: FolderBlobs) -> ScriptedGateway:
    spoil, examples, _ = ROGUES[name]

    def learn(weights: Weights, action: Train) -> Weights:
        return spoil(weights)

    settings = BrokerSettings(broker.host, broker.port)
    rogue = ScriptedGateway(settings, FLEET, name, blobs, learn, verify=lambda key, signature, body: True)
    rogue.examples = examples
    return rogue


def _ended(store: Store) -> bool:
    return [adaptation.status for adaptation in store.adaptations.all()] == [DONE]
