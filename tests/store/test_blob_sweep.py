import os
import time
from pathlib import Path

from server_bridge.flower.strategies import StrategySettings
from server_bridge.store.blob_sweep import YOUNG_S, BlobSweep
from server_bridge.store.store import Store, store_url
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, towards
from tests.rounds.bench import Bench


def age(store: Store, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0.0, time.time() - YOUNG_S - 60))


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_what_nothing_names_goes_after_an_hour(tmp_path: Path) -> None:
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    kept, orphan = store.blobs.put(b"of a release"), store.blobs.put(b"left by a kill")
    sweep = BlobSweep(store, lambda: {kept})
    assert sweep.sweep() == 0
    age(store, tmp_path / "blobs")
    store.blobs.put(b"of a release")
    again = store.blobs.put(b"young")
    assert sweep.sweep() == 1
    assert held(tmp_path / "blobs") == {kept, again}
    assert orphan not in store.blobs
    store.close()


def test_base_weights_of_past_adaptations_do_not_pile_up(tmp_path: Path) -> None:
    gateways = {name: MemoryGateway(towards(direction(1, 1.0), 0.001, seed)) for seed, name in enumerate(("g1", "g2"))}
    side = Bench(tmp_path, MemoryFleet(gateways), StrategySettings(name="clma"), rounds=3)
    sweep = BlobSweep(side.store, lambda: set(side.releases.weights.values()))
    blobs = tmp_path / "blobs"
    rounds_seen = 0

    def in_every_round() -> None:
        nonlocal rounds_seen
        rounds_seen += 1
        age(side.store, blobs)
        sweep.sweep()

    side.fleet.before_exchange = in_every_round
    for _ in range(3):
        for gateway in gateways:
            cohort = side.releases.membership.get(gateway, "root")
            side.flag(gateway, weights=side.releases.weights[cohort])
        side.clock.now_s += 100
        side.look()
    assert (rounds_seen, len(side.releases.released)) == (9, 3)
    age(side.store, blobs)
    sweep.sweep()
    assert held(blobs) == {*side.releases.weights.values(), *side.store.adaptations.memories().values()}
    side.store.close()
