"""The controller on the real fleet without a broker: who misses the deadline keeps its cohort, and what comes late is
recorded and never averaged."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_agent.wire.messages import Command, Train
from edge_agent.wire.tensors import Weights, decode_weights, encode_weights
from edge_agent.wire.updates import encode_update
from server_bridge.flower.strategies import StrategySettings
from tests.fleet.desk import Desk
from tests.fleet.gateway import answer, chunk, manifest, presence, received
from tests.flower.memory_fleet import MemoryFleet, direction, initial_weights
from tests.rounds.bench import Bench

GATEWAYS = ("g1", "g2", "g3")
TIMEOUT_S = 2.0
Script = Callable[["Line", Command], None]


def delta_of(gateway: str, number: int) -> Weights:
    """What a gateway has learned in a round; a late one would be seen at once."""
    return direction(10 * number + int(gateway[1:]), 0.1)


class Line:
    """Gateways that answer by a script, on a thread of their own; the clock moves when the script says so."""

    def __init__(self, path: Path, script: Script) -> None:
        self.desk = Desk(path, GATEWAYS)
        self.side = Bench(path, _as_memory(self.desk), StrategySettings(), rounds=2)
        self.side.releases.weights["c9"] = self.side.store.blobs.put(encode_weights(initial_weights(9)))
        self.side.releases.membership = {"g1": "c9", "g2": "c9"}
        self.commands: dict[tuple[str, int], Command] = {}
        self._script = script
        self._heard = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="gateways", daemon=True)
        self.desk.ingest.handle([presence(gateway) for gateway in GATEWAYS])
        self._thread.start()

    def send(self, gateway: str, number: int) -> None:
        """The gateway's result of a round, whole."""
        command = self.commands[gateway, number]
        assert isinstance(command.action, Train)
        data = encode_update(delta_of(gateway, number), command.action.coding)
        reply = received(answer(command, manifest(command.action, data)))
        self.desk.ingest.handle([reply, chunk(gateway, data, 0)])

    def deadline(self) -> None:
        self.desk.clock.now_s += TIMEOUT_S + 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join(5.0)
        self.side.store.close()
        self.desk.store.close()

    def _answer(self) -> None:
        while not self._ended.wait(0.005):
            for command in [c for gateway in GATEWAYS for c in self.desk.session.commands(gateway)]:
                assert isinstance(command.action, Train)
                key = (command.gateway, command.action.round)
                if key not in self.commands:
                    self.commands[key] = command
                    self._script(self, command)


def _as_memory(desk: Desk) -> MemoryFleet:
    """The bench is typed for its fleet in memory; all that it uses is the contract."""
    return desk.fleet  # type: ignore[return-value]


def late_once(line: Line, command: Command) -> None:
    """g2 sends its first result only when it has got the second order."""
    assert isinstance(command.action, Train)
    number = command.action.round
    if command.gateway != "g2":
        line.send(command.gateway, number)
    elif number == 2:
        line.send("g2", 1)
        line.send("g2", 2)
    if number == 1 and len(line.commands) == len(GATEWAYS):
        line.deadline()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path, late_once)
    yield made
    made.close()


def weights_after(line: Line, number: int, cohort: str) -> Weights:
    record = line.side.store.adaptations.rounds("a1")[number - 1]
    return decode_weights(line.side.store.blobs.read(record.weights[cohort]))


def test_a_straggler_keeps_its_cohort_and_its_late_reply_is_recorded_and_never_averaged(line: Line) -> None:
    line.side.flag("g3")
    line.side.clock.now_s += 10
    line.side.look()
    first, second = line.side.store.adaptations.rounds("a1")
    assert (first.replied, first.failed) == (["g1", "g3"], {"g2": "timeout: no usable answer in time"})
    assert (second.replied, second.failed) == (["g1", "g2", "g3"], {})
    assert [record.cohorts["g2"] for record in (first, second)] == ["c9", "c9"]
    assert [move.reason for move in line.side.store.lineage.moves(gateway="g2")] == ["placed"]
    assert line.side.releases.membership["g2"] == "c9"

    missed = line.side.store.commands.get(line.commands["g2", 1].command_id)
    assert missed is not None
    assert (missed.status, missed.failure) == ("failed", "timeout")
    assert missed.late_reply is not None
    assert missed.late_reply.status == "ok"

    for name, base in initial_weights(9).items():
        after_first = base + delta_of("g1", 1)[name]
        np.testing.assert_allclose(weights_after(line, 1, "c9")[name], after_first, atol=1e-6)
        expected = after_first + (delta_of("g1", 2)[name] + delta_of("g2", 2)[name]) / 2
        np.testing.assert_allclose(weights_after(line, 2, "c9")[name], expected, atol=1e-6)


def test_a_flagged_straggler_is_regrouped_in_the_round_that_it_answers(line: Line) -> None:
    """Partial participation: the flag waits, and is used up only with an answer."""
    line.side.flag("g2", weights=line.side.releases.weights["c9"])
    line.side.flag("g3")
    line.side.clock.now_s += 10
    line.side.look()
    (first, second) = line.side.store.adaptations.rounds("a1")
    assert (first.cohorts["g2"], second.cohorts["g2"]) == ("c9", line.side.releases.membership["g2"])
    assert second.cohorts["g2"] not in ("c9", "root")
    (flag,) = [flag for flag in line.side.store.flags.all() if flag.gateway == "g2"]
    assert (flag.status, flag.adaptation, flag.round) == ("consumed", "a1", 2)
    (moved,) = [move for move in line.side.store.lineage.moves(gateway="g2") if move.reason == "drifted"]
    assert (moved.source, moved.round) == ("c9", 2)
