"""What must hold of a fleet after any kills: read from the bridge's store, the agents' databases and logs."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from edge_agent.runtime.watch_standing import WATCH
from edge_agent.wire.messages import State
from server_bridge.releases.record import FileReleaseBook
from server_bridge.store.adaptations import DONE, RUNNING
from server_bridge.store.flags import OPEN
from server_bridge.store.store import Store
from tests.e2e.fleet import ToyFleet

DRIFTED = ("gw1", "gw2")


def is_closed(fleet: ToyFleet, store: Store, since_s: float) -> bool:
    """Every drifted gateway serves released weights of a cohort of its own, nothing is open.

    A state that a killed process left in its outbox is sent by the next one: that one's own status counts, too.

    Args:
        since_s: states that the bridge received earlier, in seconds since 1970, tell nothing.
    """
    adaptations = store.adaptations.all()
    if not adaptations or adaptations[-1].status != DONE or any(one.status == RUNNING for one in adaptations):
        return False
    if any(flag.status == OPEN for flag in store.flags.all()):
        return False
    latest = FileReleaseBook(fleet.bridge_dir / "releases").latest()
    known = store.gateways.states()
    states = {gateway: one.state for gateway, one in known.items() if one.received_s > since_s}
    if latest is None or set(states) != set(fleet.drifts):
        return False
    if any(_service(fleet, gateway) for gateway in fleet.drifts):
        return False
    current = {one.cohort: one.current.weights.digest for one in latest[0].cohorts}
    cohorts = {gateway: latest[0].members[gateway].cohort for gateway in DRIFTED if gateway in latest[0].members}
    return len(set(cohorts.values())) == len(DRIFTED) and all(
        _serves(state, cohorts.get(gateway, "root"), current) for gateway, state in states.items()
    )


def violations(fleet: ToyFleet) -> list[str]:
    """Everything that must not be, after the processes have ended; empty if all is well."""
    with fleet.store() as store:
        return [
            *(problem for gateway in fleet.drifts for problem in _flags(fleet, store, gateway)),
            *_rounds(store),
            *_failed_adaptations(store),
            *(problem for gateway in fleet.drifts for problem in _trainings(fleet, gateway)),
            *(problem for gateway in fleet.drifts for problem in _service(fleet, gateway)),
            *(problem for gateway in fleet.drifts for problem in _false_alarms(fleet, gateway)),
        ]


def _serves(state: State, cohort: str, current: dict[str, str]) -> bool:
    return (state.cohort, state.weights) == (cohort, current[cohort]) and state.served_samples > 0


def _flags(fleet: ToyFleet, store: Store, gateway: str) -> list[str]:
    """The monitor's count of firings is the bridge's count of flags and of those still to be sent."""
    path = fleet.agent_settings(gateway).with_name("data") / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT state FROM watch WHERE name = ?", (WATCH,)).fetchall()
        waiting = [json.loads(row[0]) for row in database.execute("SELECT body FROM outbox")]
    raised = {firing for row in rows for firing in range(1, json.loads(row[0])["policy"]["flags"] + 1)}
    unsent = {body["firing"] for body in waiting if body["kind"] == "flag"}
    stored = Counter(flag.event.firing for flag in store.flags.all() if flag.gateway == gateway)
    problems = [f"{gateway}: flag {firing} counted {count} times" for firing, count in stored.items() if count > 1]
    problems += [f"{gateway}: flag {firing} lost" for firing in sorted(raised - unsent - set(stored))]
    return problems + [f"{gateway}: flag {firing} never raised" for firing in sorted(set(stored) - raised)]


def _rounds(store: Store) -> list[str]:
    problems = []
    for adaptation in store.adaptations.all():
        counted = [record for record in store.adaptations.rounds(adaptation.id) if record.weights]
        numbers = [record.round for record in counted]
        if numbers != list(range(1, adaptation.rounds_done + 1)):
            problems.append(f"{adaptation.id}: rounds {numbers} counted, {adaptation.rounds_done} done")
        for record in counted:
            twice = [name for name, count in Counter(record.replied).items() if count > 1]
            problems += [f"{adaptation.id} round {record.round}: {name} counted twice" for name in twice]
    return problems


def _failed_adaptations(store: Store) -> list[str]:
    return [f"{one.id} {one.status}" for one in store.adaptations.all() if one.status not in (DONE, RUNNING)]


def _trainings(fleet: ToyFleet, gateway: str) -> list[str]:
    """A command whose result was there is never trained again."""
    done: set[str] = set()
    problems = []
    for entry in log_entries(fleet.directory / "logs" / f"{gateway}.log"):
        command = str(entry.get("command_id"))
        if entry.get("event") == "training_started" and command in done:
            problems.append(f"{gateway}: {command} trained again")
        if entry.get("event") == "training_ended" and entry.get("ok") is True:
            done.add(command)
    return problems


def _service(fleet: ToyFleet, gateway: str) -> list[str]:
    path = fleet.agent_settings(gateway).with_name("data") / "status.json"
    if not path.exists():  # its state goes out before it
        return [f"{gateway} has written no status"]
    status = json.loads(path.read_text())
    return [] if status["served_samples"] > 0 else [f"{gateway} served nothing after its last start"]


def _false_alarms(fleet: ToyFleet, gateway: str) -> list[str]:
    """A broker that was killed again and again is no second client with the same id."""
    entries = log_entries(fleet.directory / "logs" / f"{gateway}.log")
    alarms = [entry.get("client_id") for entry in entries if entry.get("event") == "mqtt-client-id-used-twice"]
    return [f"{gateway}: took a killed broker for a double of {client}" for client in alarms]


def log_entries(path: Path) -> list[dict[str, object]]:
    """The JSON lines of a log; a line that a kill cut off is none."""
    entries = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
