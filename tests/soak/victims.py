"""A three-gateway fleet whose processes are killed with signal 9 and started again."""

import json
import signal
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from os import kill
from pathlib import Path
from random import Random

from edge_agent.drift.policy.catalogue import KINDS as MONITORS
from edge_agent.drift.policy.verdict import Role
from edge_agent.runtime.watch_standing import WATCH
from server_bridge.demo.settings_files import Value, amend
from tests.broker import Mosquitto, new_mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift, write_stream

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped"), "gw3": Drift("none")}
ALONE = ("agent", "worker", "bridge", "broker")
TOGETHER = ("agent+bridge", "bridge+broker", "agent+bridge+broker")
KINDS = (*ALONE, *TOGETHER)
WORKER_WAIT_S = 90.0
LONGEST_LIFE_S = 0.5
HOLD_S = 5.0
LONGEST_ABSENCE_S = 1.5
LABELLED = tuple(name for name, kind in MONITORS.items() if kind.role is Role.LABELLED)
_WORKER = b"edge_agent.training.worker"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: what, which gateway, and when (seconds since the fleet's start)."""

    kind: str
    gateway: str
    at_s: float
    hit: bool


@dataclass
class Victims:
    """The fleet and its broker."""

    directory: Path
    rng: Random
    bundle: Path
    rounds: int
    broker: Mosquitto = field(init=False)
    fleet: ToyFleet = field(init=False)
    kills: list[Kill] = field(default_factory=list)
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.broker = new_mosquitto(self.directory)
        self.fleet = ToyFleet(self.directory, self.broker, DRIFTS, rounds=self.rounds, bundle=self.bundle)
        for number, (gateway, drift) in enumerate(DRIFTS.items()):
            write_stream(self._drifted(gateway), drift, clean_rows=0, drifted_rows=2400, seed=40 + number)
        self.fleet.start()
        self.started_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """Since the fleet's start."""
        return time.monotonic() - self.started_s

    def strike(self, kind: str) -> None:
        """Kill what ``kind`` names, together, and start each again after a moment."""
        gateway = self.rng.choice(list(DRIFTS))
        if kind == "worker":
            hit = self._kill_worker()
            self.kills.append(Kill(kind, gateway, self.age_s, hit))
            return
        parts = kind.split("+")
        hit = self._kill(parts, gateway)
        self.kills.append(Kill(kind, gateway, self.age_s, hit))
        self.rng.shuffle(parts)
        for part in parts:
            time.sleep(self.rng.uniform(0.0, LONGEST_ABSENCE_S))
            self._start(part, gateway)

    def close(self) -> dict[str, int | None]:
        """End every process; exit statuses."""
        try:
            return self.fleet.stop()
        finally:
            self.broker.kill()

    def _kill(self, parts: list[str], gateway: str) -> bool:
        """Whether all were there and ended by it."""
        names = {"agent": gateway, "bridge": "bridge"}
        processes = [self.fleet.children.members[names[part]].process for part in parts if part in names]
        for process in processes:
            process.kill()
        broker_there = self.broker.alive
        if "broker" in parts:
            self.broker.kill()
        return broker_there and [process.wait(10.0) for process in processes] == [-signal.SIGKILL] * len(processes)

    def _start(self, part: str, gateway: str) -> None:
        if part == "broker":
            self.broker.start()
        elif part == "bridge":
            self.fleet.start_bridge()
        else:
            if self._has_judged(gateway):  # else it would never have known anything but the drift
                source: dict[str, Value] = {"path": str(self._drifted(gateway)), "loop_from_row": 0}
                amend(self.fleet.agent_settings(gateway), {"source": source})  # a remounted sensor stays remounted
            self.fleet.start_agent(gateway)

    def _has_judged(self, gateway: str) -> bool:
        """Whether a monitor of losses has judged something; the first samples are clean."""
        path = self.fleet.agent_settings(gateway).with_name("data") / "agent.db"
        if not path.exists():
            return False
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as database:  # no table yet
            rows = database.execute("SELECT state FROM watch WHERE name = ?", (WATCH,))
            judged = [json.loads(row[0])["batches"] for row in rows]
            return any(batches.get(name, 0) > 0 for batches in judged for name in LABELLED)
        return False

    def _drifted(self, gateway: str) -> Path:
        return self.directory / f"{gateway}-drifted.npz"

    def _kill_worker(self) -> bool:
        """Kill a training worker within a moment of its appearance; whether one was hit.

        On a fast machine one has ended before the moment is over: the next is left half of it.
        """
        until_s, longest_s = time.monotonic() + WORKER_WAIT_S, LONGEST_LIFE_S
        while time.monotonic() < until_s:
            if self._workers():
                time.sleep(self.rng.uniform(0.0, longest_s))
                workers = self._workers()  # one that has ended meanwhile is not hit
                if workers and _hit(self.rng.choice(workers)):
                    return True
                longest_s /= 2
            time.sleep(0.02)
        return False

    def _workers(self) -> list[int]:
        agents = {child.process.pid for name, child in self.fleet.children.members.items() if name in DRIFTS}
        return [pid for agent in agents for pid in _children(agent) if _WORKER in _command(pid)]


def _hit(pid: int) -> bool:
    """Kill a process; whether it was still there to be ended by that: it is held first, which nothing dead can be."""
    until_s = time.monotonic() + HOLD_S
    with suppress(ProcessLookupError, FileNotFoundError):
        kill(pid, signal.SIGSTOP)
        while (state := _state(pid)) not in "TZX" and time.monotonic() < until_s:
            time.sleep(0.001)
        kill(pid, signal.SIGKILL)
        return state == "T"
    return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _children(pid: int) -> list[int]:
    """Processes whose parent it is; not every kernel has the file that lists them."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
