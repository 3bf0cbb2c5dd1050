"""One arm: a fleet on a broker with one strategy, from first sample to repaired (or poisoned) models."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_agent.errors import TransientError
from edge_agent.link.settings import BrokerSettings
from server_bridge.demo.base import Groundwork
from server_bridge.demo.broker import BrokerProcess
from server_bridge.demo.children import Children
from server_bridge.demo.facts import ArmFacts, RoundFacts
from server_bridge.demo.fleet_folder import FleetFolder
from server_bridge.demo.measure import BASE
from server_bridge.demo.observe import Look, Observer, gateway_facts, measured, recent_accuracy
from server_bridge.demo.plan import TRUTHS
from server_bridge.demo.progress import GatewayLine, Progress
from server_bridge.demo.streams import StreamPlan
from server_bridge.demo.timing import LOOK_INTERVAL_S, Limits
from server_bridge.demo.witness import Witness
from server_bridge.store.adaptations import DONE, FAILED
from server_bridge.store.store import Store, store_url

BRIDGE = "bridge"
STOP_TIMEOUT_S = 10.0

Missing = Callable[[Look], Sequence[str]]


@dataclass(slots=True)
class Arm:
    """A running arm.

    Args:
        title: for people.
        children: ends the processes, whatever happens.
    """

    title: str
    strategy: str
    folder: FleetFolder
    groundwork: Groundwork
    broker: BrokerProcess
    children: Children
    progress: Progress
    limits: Limits
    _observer: Observer = field(init=False)
    _witness: Witness = field(init=False)
    _began_s: float = field(init=False, default=0.0)
    _phases: list[tuple[str, float]] = field(init=False, default_factory=list)
    _peaks: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        store = Store(store_url(self.folder.bridge), self.folder.bridge / "blobs")
        self._observer = Observer(store, self.groundwork.streams)
        self._witness = Witness(self.broker_settings, self.folder.fleet)

    @property
    def broker_settings(self) -> BrokerSettings:
        """The arm's broker."""
        return BrokerSettings(self.broker.host, self.broker.port)

    @property
    def witness(self) -> Witness:
        """The listener that counts bytes and holds the last release map."""
        return self._witness

    @property
    def gateways(self) -> list[str]:
        """Ids of the fleet."""
        return list(self.groundwork.streams)

    def seconds(self, wall_s: float) -> float:
        """A wall time on the arm's own scale."""
        return wall_s - self._began_s

    def run(self) -> None:
        """From start-up to at least one whole holdout pass on the released weights.

        Raises:
            TransientError: a phase took too long or a process ended; says which and shows the log.
        """
        limits = self.limits
        self._start_bridge(limits.start)
        self._began_s = time.time()
        for gateway, settings in self.folder.gateways.items():
            self.children.start(gateway, "edge-agent", ["run", "-c", str(settings)])
        self.phase("start", "gateways start", limits.start, self._offline)
        self.phase("clean", "clean data, base weights serve", limits.clean, self._before_open)
        self.phase("drift", "sensors remounted, waiting for flags and samples", limits.drift, self._no_adaptation)
        self.phase("rounds", "adaptation rounds", limits.rounds, self._rounds_open)
        self.phase("activation", "release is fetched, verified, activated", limits.activation, self._on_base)
        self.phase("recovery", "a whole holdout pass on the new weights", limits.recovery, self._final_open)

    def phase(self, name: str, words: str, limit_s: float, missing: Missing) -> Look:
        """Look until nothing is missing.

        Raises:
            TransientError: something is still missing after ``limit_s``, or a process ended.
        """
        self.progress.phase(self.title, words)
        began_s = time.monotonic()
        while True:
            look = self._observer.look()
            waiting = missing(look)
            self.progress.gateways(self._lines(look), f"waiting for {', '.join(waiting)}" if waiting else "")
            if not waiting:
                self._phases.append((name, time.monotonic() - began_s))
                return look
            self.children.check()
            if time.monotonic() - began_s > limit_s:
                raise self._stuck(words, limit_s, waiting)
            time.sleep(LOOK_INTERVAL_S)

    def finish(self) -> ArmFacts:
        """Stop everything and say what was seen."""
        self.progress.phase(self.title, "stopping")
        for gateway in self.gateways:
            self._peaks[gateway] = self.children.members[gateway].peak_rss_bytes()
        look = self._observer.look()
        traffic = self._witness.traffic
        wall_s = self.seconds(time.time())
        for name, status in self.children.stop(STOP_TIMEOUT_S).items():
            if status != 0:
                self.progress.note(f"{self.title}: {name} ended with status {status} on SIGTERM")
        self.close()
        return ArmFacts(
            strategy=self.strategy,
            gateways=tuple(
                gateway_facts(stream, look, self._began_s, self._peaks[gateway])
                for gateway, stream in self.groundwork.streams.items()
            ),
            rounds=tuple(
                RoundFacts(r.round, self.seconds(r.started_s), self.seconds(r.ended_s), len(r.replied), len(r.failed))
                for r in look.rounds
            ),
            released_s=self._released_s(look),
            wall_s=wall_s,
            phases=tuple(self._phases),
            bytes_up=traffic.up,
            bytes_down_published=traffic.down_published,
        )

    def close(self) -> None:
        """Stop listening and let go of the store; may be called twice."""
        self._witness.stop(STOP_TIMEOUT_S)
        self._observer.store.close()

    def _start_bridge(self, limit_s: float) -> None:
        self.progress.phase(self.title, "bridge starts and publishes release 1")
        self._witness.start()
        began_s = time.monotonic()
        while not self._witness.connected and time.monotonic() - began_s < limit_s:
            time.sleep(0.05)
        self.children.start(BRIDGE, "server-bridge", ["run", "-c", str(self.folder.bridge_settings)])
        while self._witness.release is None:
            self.children.check()
            if time.monotonic() - began_s > limit_s:
                raise self._stuck("the bridge to publish release 1", limit_s, [BRIDGE])
            time.sleep(0.1)

    def _offline(self, look: Look) -> list[str]:
        return [gateway for gateway in self.gateways if gateway not in look.online or gateway not in look.states]

    def _before_open(self, look: Look) -> list[str]:
        return [gateway for gateway, stream in self._streams() if not measured(stream, look).before_done]

    def _no_adaptation(self, look: Look) -> list[str]:
        if look.adaptations:
            return []
        flagged = {event.gateway for event in look.flags}
        silent = [gateway for gateway, stream in self._streams() if stream.gateway.drifts and gateway not in flagged]
        return [f"flags of {', '.join(silent)}"] if silent else ["samples of the flagged gateways"]

    def _rounds_open(self, look: Look) -> list[str]:
        adaptation = look.adaptations[0]
        if adaptation.status == FAILED:
            raise TransientError(f"{self.title}: the adaptation failed: {adaptation.reason}", str(self.children.logs))
        if adaptation.status == DONE:
            return []
        return [f"round {min(adaptation.rounds_done + 1, adaptation.rounds)} of {adaptation.rounds}"]

    def _on_base(self, look: Look) -> list[str]:
        return [gateway for gateway in self.gateways if look.model(gateway) in (None, BASE)]

    def _final_open(self, look: Look) -> list[str]:
        return [gateway for gateway, stream in self._streams() if not measured(stream, look).final_done]

    def _streams(self) -> list[tuple[str, StreamPlan]]:
        return list(self.groundwork.streams.items())

    def _released_s(self, look: Look) -> float | None:
        ended_s = [adaptation.ended_s for adaptation in look.adaptations if adaptation.status == DONE]
        return None if not ended_s or ended_s[0] is None else self.seconds(ended_s[0])

    def _lines(self, look: Look) -> list[GatewayLine]:
        flagged = {event.gateway for event in look.flags}
        lines = []
        for gateway, stream in self._streams():
            model = look.model(gateway) or BASE
            lines.append(
                GatewayLine(
                    id=gateway,
                    truth=TRUTHS[stream.gateway.family],
                    online=gateway in look.online,
                    accuracy=recent_accuracy(stream, look),
                    flagged=gateway in flagged,
                    cohort=model.cohort,
                    version=model.version,
                )
            )
        return lines

    def _stuck(self, words: str, limit_s: float, waiting: Sequence[str]) -> TransientError:
        names = [name for name in (*waiting, BRIDGE) if name in self.children.members]
        tails = [f"--- end of {name}.log\n{self.children.members[name].log_tail()}" for name in names[:3]]
        problem = f"{self.title}, {words}: after {limit_s:.0f} s still waiting for {', '.join(waiting)}"
        return TransientError("\n".join([problem, *tails]), f"all logs: {self.children.logs}")


def broker_directory(arm_directory: Path) -> Path:
    """Where an arm's broker keeps its files."""
    return arm_directory / "broker"
