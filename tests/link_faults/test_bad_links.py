"""The whole loop over bad links: every gateway has a link of its own, the bridge sits beside the broker."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from server_bridge.demo.settings_files import amend
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift
from tests.link_faults.proxy import LinkFault, LinkProxy

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped"), "gw3": Drift("none")}
# Who is regrouped first depends on whose link is back first.
_PARTED = ({"gw1": "c1", "gw2": "c2", "gw3": "root"}, {"gw1": "c2", "gw2": "c1", "gw3": "root"})
FROZEN_S = 25.0
MODEM = LinkFault(rate_bytes_s=1200.0, latency_s=0.6, loss=0.05)


@contextmanager
def _linked(fleet: ToyFleet, fault: LinkFault) -> Iterator[dict[str, LinkProxy]]:
    with ExitStack() as stack:
        links = {}
        for number, gateway in enumerate(fleet.drifts):
            links[gateway] = stack.enter_context(LinkProxy(fleet.broker.port, fault, seed=number))
            amend(
                fleet.agent_settings(gateway),
                {
                    "broker": {"port": links[gateway].port},
                    "report": {"state_interval_s": 15.0},
                    "monitor": {"bucket_s": 30.0},
                },
            )
        yield links


def _closed(store: Store) -> bool:
    adaptations = [one.status for one in store.adaptations.all()]
    cohorts = {gateway: known.state.cohort for gateway, known in store.gateways.states().items()}
    return adaptations == [DONE] and cohorts in _PARTED


def _flagged(store: Store) -> bool:
    return {flag.gateway for flag in store.flags.all()} == {"gw1", "gw2"}


def _wait_for_the_absent(fleet: ToyFleet) -> None:
    """Longer than the link is down."""
    amend(fleet.bridge_dir / "bridge.toml", {"trigger": {"min_samples_cap_s": 120.0}})


def _losses_logged(fleet: ToyFleet) -> dict[str, int]:
    """How often each agent has said that its own connection is lost."""
    return {
        gateway: (fleet.directory / "logs" / f"{gateway}.log")
        .read_text(errors="replace")
        .count('"event": "disconnected"')
        for gateway in fleet.drifts
    }


def _check_nothing_lost(fleet: ToyFleet) -> None:
    with fleet.store() as store:
        flags = [(flag.gateway, flag.event.firing) for flag in store.flags.all()]
        assert len(flags) == len(set(flags))
        assert {gateway for gateway, _ in flags} == {"gw1", "gw2"}
        rounds = [record.round for record in store.adaptations.rounds("a1") if record.replied]
        assert rounds == [1, 2]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_loop_closes_over_a_modem(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """9.6 kbit/s, 600 ms each way and 5 % of the packets lost, all at once."""
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    with _linked(fleet, MODEM):
        try:
            fleet.start()
            fleet.wait("the loop to close", _closed, timeout_s=420)
            _check_nothing_lost(fleet)
        finally:
            statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.long
def test_the_loop_closes_over_a_link_cut_every_few_seconds(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """And nobody takes the cuts for a double of the gateway."""
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    with _linked(fleet, LinkFault(cut_every_s=5.0)) as links:
        try:
            fleet.start()
            fleet.wait(
                "the loop to close, and each link to be cut twice",
                lambda store: _closed(store) and all(link.cuts >= 2 for link in links.values()),
                timeout_s=240,
            )
            _check_nothing_lost(fleet)
            with fleet.store() as store:
                assert not store.events.recent(kinds=("error",))
        finally:
            statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.long
def test_a_half_open_link_is_noticed_and_left(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """The bridge waits for the flagged gateways to come back: none is left to a later adaptation."""
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    _wait_for_the_absent(fleet)
    with _linked(fleet, LinkFault()) as links:
        try:
            fleet.start()
            fleet.wait("the flags", _flagged, timeout_s=120)
            noticed = _losses_logged(fleet)
            for link in links.values():
                link.silent = True
            fleet.wait(
                "every gateway to notice, by twice its keepalive of 10 s",
                lambda store: all(now > noticed[name] for name, now in _losses_logged(fleet).items()),
                timeout_s=60,
            )
            accepted = {gateway: link.accepted for gateway, link in links.items()}
            fleet.wait(
                "every gateway to try again",
                lambda store: all(link.accepted > accepted[name] for name, link in links.items()),
                timeout_s=120,
            )
            for link in links.values():
                link.silent = False
            fleet.wait("the loop to close", _closed, timeout_s=240)
            _check_nothing_lost(fleet)
        finally:
            statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.long
def test_a_frozen_broker_delays_and_loses_nothing(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
    _wait_for_the_absent(fleet)
    try:
        fleet.start()
        fleet.wait("the flags", _flagged, timeout_s=120)
        mosquitto.pause()
        thaw = threading.Timer(FROZEN_S, mosquitto.resume)
        thaw.start()
        try:
            before = _served(fleet)
            while not all(after > before[gateway] for gateway, after in _served(fleet).items()):
                assert thaw.is_alive(), "nothing was served while the broker was frozen"
                time.sleep(0.2)
        finally:
            thaw.join()
        fleet.wait("the loop to close", _closed, timeout_s=240)
        _check_nothing_lost(fleet)
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


def _served(fleet: ToyFleet) -> dict[str, float]:
    """When the samples of each gateway were last written: serving goes on whatever the broker does."""
    folders = {gateway: fleet.agent_settings(gateway).parent for gateway in fleet.drifts}
    return {
        gateway: max(path.stat().st_mtime for path in folder.rglob("samples.db*"))
        for gateway, folder in folders.items()
    }
