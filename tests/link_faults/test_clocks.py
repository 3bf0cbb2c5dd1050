"""Wrong wall clocks: serving never stops, and what is activated follows the rules of releases, not the clock."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_agent.wire.messages import State, UpdateLifecycleEvent
from server_bridge.demo.children import Child
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift

REPOSITORY = Path(__file__).resolve().parents[2]
YEAR_2099_S = 4_070_908_800.0
WAIT_S = 90.0
DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped")}


@contextmanager
def _shifted(fleet: ToyFleet, gateway: str, clock_s: float) -> Iterator[Path]:
    """Run a gateway's agent at ``clock_s``; the file yielded holds the shift and may be changed."""
    shift = fleet.directory / f"{gateway}.shift"
    _set(shift, clock_s)
    log = fleet.directory / "logs" / f"{gateway}.log"
    module = "tests.link_faults.shifted_clock"
    command = [sys.executable, "-m", module, str(shift), "run", "-c", str(fleet.agent_settings(gateway))]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    fleet.children.members[gateway] = Child(gateway, process, log)
    yield shift


def _end(fleet: ToyFleet, gateway: str) -> None:
    process = fleet.children.members.pop(gateway).process
    process.terminate()
    assert process.wait(WAIT_S) == 0


def _set(shift: Path, clock_s: float) -> None:
    fresh = shift.with_suffix(".new")
    fresh.write_text(str(clock_s - time.time()))
    fresh.replace(shift)


def _state(store: Store, gateway: str) -> State | None:
    known = store.gateways.states().get(gateway)
    return None if known is None else known.state


def _in_cohort(store: Store, gateway: str) -> bool:
    state = _state(store, gateway)
    return state is not None and state.cohort != "root"


def _refused(store: Store, gateway: str) -> list[str | None]:
    events = [event for event in store.events.recent(kinds=("update",)) if event.gateway == gateway]
    bodies = [event.body for event in events if isinstance(event.body, UpdateLifecycleEvent)]
    return [body.reason for body in bodies if body.step == "refused"]


def _serves(fleet: ToyFleet, gateway: str) -> None:
    with fleet.store() as store:
        before = _state(store, gateway)
        assert before is not None
    fleet.wait(
        "more served samples",
        lambda store: (state := _state(store, gateway)) is not None and state.served_samples > before.served_samples,
        timeout_s=WAIT_S,
    )


@pytest.mark.long
def test_at_1970_the_floor_is_the_clock_and_the_loop_closes(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    try:
        fleet.start_bridge()
        fleet.start_agent("gw2")
        with _shifted(fleet, "gw1", 100.0) as shift:
            fleet.wait("the new cohort", lambda store: _in_cohort(store, "gw1"), timeout_s=200)
            with fleet.store() as store:
                state = _state(store, "gw1")
                assert state is not None
                assert not state.clock.trusted
                assert state.clock.floor_s > 1.7e9
                assert not _refused(store, "gw1")
            _serves(fleet, "gw1")
            _set(shift, time.time())
            fleet.wait(
                "trust in the clock",
                lambda store: (state := _state(store, "gw1")) is not None and state.clock.trusted,
                timeout_s=WAIT_S,
            )
            _serves(fleet, "gw1")
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.long
def test_a_jump_to_2099_bars_activation_only_as_long_as_it_lasts(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    try:
        fleet.start_bridge()
        fleet.start_agent("gw2")
        with _shifted(fleet, "gw1", time.time()) as shift:
            fleet.wait("a flag", lambda store: bool(store.flags.all()), timeout_s=WAIT_S)
            _set(shift, YEAR_2099_S)
            fleet.wait("the refusal", lambda store: "expired_or_clock_wrong" in _refused(store, "gw1"), timeout_s=200)
            with fleet.store() as store:
                assert not _in_cohort(store, "gw1")
            _serves(fleet, "gw1")
            with fleet.store() as store:
                state = _state(store, "gw1")
                assert state is not None
                assert not state.clock.trusted
            _end(fleet, "gw1")
        with _shifted(fleet, "gw1", time.time()):
            fleet.wait("the new cohort", lambda store: _in_cohort(store, "gw1"), timeout_s=WAIT_S)
            _serves(fleet, "gw1")
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.long
def test_an_agent_born_in_2099_serves_and_is_cured_by_the_right_time(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, {"gw1": Drift("none")})
    try:
        fleet.start_bridge()
        with _shifted(fleet, "gw1", YEAR_2099_S):
            fleet.wait(
                "the refusal", lambda store: "expired_or_clock_wrong" in _refused(store, "gw1"), timeout_s=WAIT_S
            )
            _serves(fleet, "gw1")
            _end(fleet, "gw1")
        with _shifted(fleet, "gw1", time.time()):
            fleet.wait("the release", lambda store: _settled(store), timeout_s=WAIT_S)
            _serves(fleet, "gw1")
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


def _settled(store: Store) -> bool:
    state = _state(store, "gw1")
    return state is not None and state.trusted.map_digest is not None and state.ota_state == "committed"
