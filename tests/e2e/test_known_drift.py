"""A known drift on real processes: a gateway evaluates the cohorts' models and lands in the one that has it."""

from pathlib import Path

import pytest

from server_bridge.demo.settings_files import Sections, amend
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift

LATE = "gw4"
DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("none"), "gw3": Drift("none"), LATE: Drift("permuted")}


def _done(store: Store, count: int) -> bool:
    return [adaptation.status for adaptation in store.adaptations.all()] == [DONE] * count


def _cohort(store: Store, gateway: str) -> str | None:
    known = store.gateways.states().get(gateway)
    return None if known is None else known.state.cohort


@pytest.mark.long
@pytest.mark.mosquitto
def test_a_gateway_that_drifts_into_a_known_concept_lands_in_its_cohort(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    asking: Sections = {"strategy": {"candidates": 2}, "trigger": {"min_flags": 1, "cooldown_s": 0.5}}
    amend(fleet.bridge_dir / "bridge.toml", asking)
    try:
        fleet.start_bridge()
        for gateway in ("gw1", "gw2", "gw3"):
            fleet.start_agent(gateway)
        fleet.wait("gw1's cohort", lambda store: _done(store, 1) and _cohort(store, "gw1") == "c1", timeout_s=180)
        fleet.start_agent(LATE)
        fleet.wait("the known drift", lambda store: _done(store, 2) and _cohort(store, LATE) == "c1", timeout_s=180)
        with fleet.store() as store:
            bundle = store.adaptations.all()[0].bundle
            assert store.lineage.members(bundle) == {"gw1": "c1", "gw2": "root", "gw3": "root", LATE: "c1"}
            assert [life.id for life in store.lineage.cohorts()] == ["root", "c1"]
            (move,) = [each for each in store.lineage.moves(gateway=LATE) if each.reason == "recognised"]
            assert (move.adaptation, move.round, move.source, move.target) == ("a2", 1, "root", "c1")
            losses = move.statistics["losses"]
            assert losses["c1"] < move.statistics["threshold"] < losses["root"]
            assert store.adaptations.rounds("a2")[0].drifted == [LATE]
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}
