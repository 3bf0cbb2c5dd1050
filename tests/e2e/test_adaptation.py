"""Following the stream between rounds, on real processes: it helps where features move, and labels end it where not."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.wire.codec import decode
from edge_agent.wire.messages import STATE_CAP_BYTES, ErrorEvent, State
from edge_agent.wire.topics import FleetTopics
from server_bridge.demo.settings_files import amend
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import FLEET, ToyFleet
from tests.e2e.gateway import run
from tests.e2e.toy import Drift
from tests.link.peers import Publisher
from tests.training.label_free_bundle import gaussian, label_free_bundle

Values = dict[str, str | int | float | bool]
ALONE, FOLLOWS, HARMED = "gw0", "gw1", "gw2"
ROWS, RATE_HZ, BEGIN = 12_000, 250.0, 400
MOVED = 1.6
UNEVEN = np.array([0.95, 0.03, 0.02])
FOLLOWING: Values = {
    "online": True,
    "eta_min": 0.05,
    "eta_max": 0.3,
    "steps": 2,
    "batch_size": 64,
    "interval_s": 1.0,
    "max_swaps_per_hour": 1000,
    "judge_within_s": 60.0,
}
HARM: Values = {"eta_min": 1.0, "eta_max": 1.0, "steps": 5, "farthest": 0.5, "judge_within_s": 600.0}
SERVES_FIRST_S = 4.0
"""Labels that come so late find the overlay serving; early ones may find it worse before that, and nobody is told."""
JUDGED_SPANS = 4
"""Of a second of the stream each, with 25 labelled holdout samples a gateway."""


def _stream(path: Path, *, moved: float, shares: NDArray[np.float64] | None, delay_s: float) -> None:
    """Even and unmoved at first; the same samples for every gateway of the same drift."""
    first, second = gaussian(BEGIN, 3), gaussian(ROWS - BEGIN, 4, shares, moved)
    x = np.concatenate([first[0]["x"], second[0]["x"]])
    label = np.concatenate([first[1], second[1]])
    rows = np.arange(ROWS)
    np.savez(path, x=x, label=label, holdout=rows % 10 == 0, delay=np.full(ROWS, delay_s, np.float32))


def _fleet(tmp_path: Path, mosquitto: Mosquitto) -> ToyFleet:
    bundle = label_free_bundle(tmp_path / "net", held_rows=800)
    assert "label-free" in bundle.manifest.monitors
    gateways = {name: Drift("none") for name in (ALONE, FOLLOWS, HARMED)}
    fleet = ToyFleet(tmp_path, mosquitto, gateways, bundle=bundle.path, training_graph="sgd")
    amend(fleet.bridge_dir / "bridge.toml", {"trigger": {"min_flags": 99}})  # flags come, and no round answers them
    for name in gateways:
        harmed = name == HARMED
        moved, shares, delay_s = (0.0, UNEVEN, SERVES_FIRST_S) if harmed else (MOVED, None, 0.2)
        _stream(tmp_path / f"{name}.npz", moved=moved, shares=shares, delay_s=delay_s)
        source: Values = {"kind": "replay", "path": str(tmp_path / f"{name}.npz"), "rate_hz": RATE_HZ}
        amend(fleet.agent_settings(name), {"source": {**source, "loop": True, "loop_from_row": BEGIN}})
        if name != ALONE:
            amend(fleet.agent_settings(name), {"adaptation": {**FOLLOWING, **(HARM if harmed else {})}})
    return fleet


def _overlay(store: Store, gateway: str) -> int:
    """Batches of the overlay that a gateway says it serves; 0: none."""
    known = store.gateways.states().get(gateway)
    return 0 if known is None or known.state.overlay is None else known.state.overlay.batches


def _right(store: Store, gateway: str, buckets: range, *, on_overlay: bool, release: str) -> tuple[int, int]:
    """Right and labelled holdout samples in these seconds, by overlays or by the release."""
    rows = [row for row in store.counts.all(gateway) if row.bucket in buckets]
    rows = [row for row in rows if (row.weights != release) == on_overlay]
    return sum(row.right for row in rows), sum(row.labelled for row in rows)


def _taken_off(store: Store) -> list[str]:
    told = [event.body for event in store.events.recent(kinds=("error",), limit=100) if event.gateway == HARMED]
    return [body.problem for body in told if isinstance(body, ErrorEvent) and body.place == "adaptation"]


@pytest.mark.long
@pytest.mark.mosquitto
def test_it_gains_where_features_move_and_is_taken_off_where_labels_find_it_worse(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    fleet = _fleet(tmp_path, mosquitto)
    try:
        fleet.start()
        fleet.wait("an overlay of ten batches", lambda store: _overlay(store, FOLLOWS) >= 10, timeout_s=180)
        fleet.wait("the harm being told", lambda store: _taken_off(store) != [], timeout_s=180)
        fleet.wait("its end", lambda store: _overlay(store, HARMED) == 0, timeout_s=120)
        with fleet.store() as store:
            release = store.gateways.states()[ALONE].state.weights
            assert {state.state.weights for state in store.gateways.states().values()} == {release}
            since = max(row.bucket for row in store.counts.all(FOLLOWS)) + 2
        spans = range(since, since + JUDGED_SPANS)
        fleet.wait(
            "both counted",
            lambda store: all(
                max((row.bucket for row in store.counts.all(name)), default=0) > spans.stop for name in (ALONE, FOLLOWS)
            ),
            timeout_s=120,
        )
        shown = run("status", "-c", str(fleet.agent_settings(FOLLOWS)))
        with fleet.store() as store:
            alone = _right(store, ALONE, spans, on_overlay=False, release=release)
            followed = _right(store, FOLLOWS, spans, on_overlay=True, release=release)
            of_release = _right(store, FOLLOWS, spans, on_overlay=False, release=release)
            boot = store.gateways.states()[FOLLOWS].state.boot_id
        fleet.children.members[FOLLOWS].process.kill()
        fleet.children.members[FOLLOWS].process.wait(10)
        listener = Publisher(mosquitto.port, FleetTopics(FLEET).state(FOLLOWS))
        fleet.start_agent(FOLLOWS)
        started = _first_of_another_start(listener, boot)
        listener.close()
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}
    harmed = _said(tmp_path, HARMED)
    assert followed[1] >= 50, "under overlays, and counted as theirs"
    assert of_release[1] == 0

    assert followed[0] / followed[1] > alone[0] / alone[1] + 0.03, (followed, alone)
    assert (harmed["state"], harmed["dropped"]) == ("rests", {"worse": 1})
    assert (started.weights, started.overlay) == (release, None), "a kill comes up with the release"
    assert "adaptation: overlaid" in shown.out
    assert _said(tmp_path, ALONE)["state"] == "off"


def _first_of_another_start(listener: Publisher, boot: str) -> State:
    """The first state of all: soon after it there is an overlay again."""
    while True:
        (message,) = listener.hear(1)
        state = decode(State, message.payload, cap_bytes=STATE_CAP_BYTES)
        if state.boot_id != boot:
            return state


def _said(directory: Path, gateway: str) -> dict[str, object]:
    status = json.loads((directory / "gateways" / gateway / "data" / "status.json").read_text())
    found: dict[str, object] = status["adaptation"]
    return found
