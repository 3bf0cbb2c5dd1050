"""A small fleet of real processes on a real broker, and what its bridge's store says of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from server_bridge.demo.broker import BrokerProcess
from server_bridge.demo.children import Children
from server_bridge.demo.settings_files import Sections, amend
from server_bridge.enrolment import enrol
from server_bridge.releases.provision import init_fleet
from server_bridge.store.store import Store, store_url
from tests.e2e.toy import Drift, toy_bundle, write_stream

FLEET = "toy"
CLEAN_ROWS = 400
DRIFTED_ROWS = 2400
RATE_HZ = 200.0
STOP_S = 60.0


@dataclass
class ToyFleet:
    """Folders, processes and store of one fleet."""

    directory: Path
    broker: BrokerProcess
    drifts: dict[str, Drift]
    strategy: str = "clma"
    rounds: int = 2
    training_graph: str = "adam"
    learning_rate: float = 0.01
    max_samples: int = 600
    extra: tuple[str, ...] = ()
    founded: Callable[[Path], None] = lambda bridge_dir: None
    """Called with the bridge's folder before any gateway is provisioned."""
    bundle: Path | None = None
    """Made already; else one is made."""
    children: Children = field(init=False)

    def __post_init__(self) -> None:
        self.children = Children(self.directory / "logs")
        self.directory.joinpath("logs").mkdir(parents=True, exist_ok=True)
        bundle = self.bundle or toy_bundle(self.directory / "work").path
        init_fleet(self.bridge_dir, bundle, FLEET)
        amend(self.bridge_dir / "bridge.toml", self._bridge_sections())
        self.founded(self.bridge_dir)
        enrol(self.bridge_dir / "bridge.toml", [*self.drifts, *self.extra], self.directory / "gateways")
        for number, (gateway, drift) in enumerate(self.drifts.items()):
            stream = self.directory / f"{gateway}.npz"
            write_stream(stream, drift, clean_rows=CLEAN_ROWS, drifted_rows=DRIFTED_ROWS, seed=10 + number)
            amend(self.agent_settings(gateway), self._gateway_sections(stream))

    @property
    def bridge_dir(self) -> Path:
        return self.directory / "bridge"

    def agent_settings(self, gateway: str) -> Path:
        return self.directory / "gateways" / gateway / "agent.toml"

    def start_bridge(self) -> None:
        self.children.start("bridge", "server-bridge", ["run", "-c", str(self.bridge_dir / "bridge.toml")])

    def start_agent(self, gateway: str) -> None:
        self.children.start(gateway, "edge-agent", ["run", "-c", str(self.agent_settings(gateway))])

    def start(self) -> None:
        self.start_bridge()
        for gateway in self.drifts:
            self.start_agent(gateway)

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = Store(store_url(self.bridge_dir), self.bridge_dir / "blobs")
        try:
            yield store
        finally:
            store.close()

    def wait(self, what: str, seen: Callable[[Store], bool], *, timeout_s: float) -> None:
        """Until the store says so; a process that ends, or the time, is a failure with the logs' ends."""
        deadline = time.monotonic() + timeout_s
        with self.store() as store:
            while not seen(store):
                self.children.check()
                if time.monotonic() > deadline:
                    tails = "\n".join(f"--- {c.name}\n{c.log_tail()}" for c in self.children.members.values())
                    raise AssertionError(f"after {timeout_s:.0f} s still waiting for: {what}\n{tails}")
                time.sleep(0.2)

    def stop(self) -> dict[str, int | None]:
        """SIGTERM to all; a busy machine takes seconds to unmap what a process held."""
        return self.children.stop(STOP_S)

    def _bridge_sections(self) -> Sections:
        return {
            "broker": {"host": self.broker.host, "port": self.broker.port, "keepalive_s": 10},
            "strategy": {"name": self.strategy},
            "trigger": {"min_flags": 2, "settle_s": 1.0, "min_samples": 150, "min_samples_cap_s": 30.0},
            "round": {
                "rounds": self.rounds,
                "training_graph": self.training_graph,
                "timeout_s": 40.0,
                "learning_rate": self.learning_rate,
                "epochs": 4,
                "min_samples": 50,
                "max_samples": self.max_samples,
            },
        }

    def _gateway_sections(self, stream: Path) -> Sections:
        return {
            "broker": {"host": self.broker.host, "port": self.broker.port, "keepalive_s": 10},
            "source": {
                "kind": "replay",
                "path": str(stream),
                "rate_hz": RATE_HZ,
                "loop": True,
                "loop_from_row": CLEAN_ROWS,
            },
            "monitor": {"bucket_s": 1.0},
            "report": {"state_interval_s": 1.0},
        }
