"""The loop on real processes: three gateways, a bridge, mosquitto."""

from pathlib import Path

import pytest

from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto, new_mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped"), "gw3": Drift("none")}


def _released(store: Store) -> bool:
    return [adaptation.status for adaptation in store.adaptations.all()] == [DONE]


def _active(store: Store) -> dict[str, tuple[str, int]]:
    states = {gateway: known.state for gateway, known in store.gateways.states().items()}
    return {gateway: (state.cohort, state.weights_version) for gateway, state in states.items()}


def _closed(store: Store) -> bool:
    cohorts = {gateway: cohort for gateway, (cohort, _) in _active(store).items()}
    return _released(store) and cohorts == {"gw1": "c1", "gw2": "c2", "gw3": "root"}


def _accuracy(store: Store, gateway: str, cohort: str) -> float:
    counts = [entry for entry in store.counts.all(gateway) if entry.cohort == cohort]
    return sum(entry.right for entry in counts) / max(1, sum(entry.labelled for entry in counts))


def _fleet(tmp_path: Path, mosquitto: Mosquitto, **options: int | str) -> ToyFleet:
    return ToyFleet(tmp_path, mosquitto, DRIFTS, **options)  # type: ignore[arg-type]  # plain keywords


@pytest.mark.slow
def test_from_flag_to_activation(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = _fleet(tmp_path, mosquitto)
    try:
        fleet.start()
        fleet.wait("the loop to close", _closed, timeout_s=180)
        fleet.wait("holdout samples on new weights", lambda store: _enough(store), timeout_s=180)
        with fleet.store() as store:
            assert {flag.gateway for flag in store.flags.all()} == {"gw1", "gw2"}
            assert _accuracy(store, "gw1", "c1") > 0.85
            assert _accuracy(store, "gw2", "c2") > 0.85
            reasons = [(decision.kind, decision.reason) for decision in store.decisions.recent()]
            assert ("start", "flags-settled") in reasons
            assert ("adaptation-done", "released") in reasons
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


def _enough(store: Store) -> bool:
    return all(
        sum(entry.labelled for entry in store.counts.all(gateway) if entry.cohort == cohort) >= 50
        for gateway, cohort in (("gw1", "c1"), ("gw2", "c2"))
    )


@pytest.mark.slow
def test_broker_absent_at_start(tmp_path: Path) -> None:
    broker = new_mosquitto(tmp_path)
    broker.stop()
    fleet = _fleet(tmp_path, broker)
    try:
        fleet.start()
        with pytest.raises(AssertionError, match="still waiting"):
            fleet.wait("an online gateway while there is no broker", lambda store: _active(store) != {}, timeout_s=4)
        broker.start()
        fleet.wait("the loop to close", _closed, timeout_s=200)
    finally:
        statuses = fleet.stop()
        broker.kill()
    assert set(statuses.values()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["restart", "kill"])
def test_broker_restarted_in_mid_round(tmp_path: Path, mosquitto: Mosquitto, way: str) -> None:
    fleet = _fleet(tmp_path, mosquitto, rounds=4)
    try:
        fleet.start()
        fleet.wait("the first round to end", lambda store: _rounds_done(store) >= 1, timeout_s=180)
        if way == "kill":
            mosquitto.kill()
            mosquitto.start()
        else:
            mosquitto.restart()
        fleet.wait("the loop to close", _closed, timeout_s=240)
        with fleet.store() as store:
            assert [record.round for record in store.adaptations.rounds("a1") if record.replied] == [1, 2, 3, 4]
            assert sorted(flag.gateway for flag in store.flags.all()) == ["gw1", "gw2"]
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


def _rounds_done(store: Store) -> int:
    return max((adaptation.rounds_done for adaptation in store.adaptations.all()), default=0)
