"""One arm's fresh fleet on disk: keys, release 1, a folder a gateway, and the demo's settings in them."""

from dataclasses import dataclass
from pathlib import Path

from edge_agent.link.durable import make_directory
from server_bridge.demo.base import Groundwork
from server_bridge.demo.broker import BrokerProcess
from server_bridge.demo.settings_files import Sections, amend
from server_bridge.demo.timing import (
    BATCH_SIZE,
    FIRST_LEARNING_RATE,
    LEARNING_RATE,
    LOCAL_EPOCHS,
    RATE_HZ,
    ROUND_LEAST_SAMPLES,
    ROUND_MOST_SAMPLES,
    ROUNDS,
    SOURCE_BATCH_ROWS,
    STATE_INTERVAL_S,
    TRIGGER_SAMPLES,
)
from server_bridge.enrolment import enrol
from server_bridge.releases.provision import init_fleet

KEEPALIVE_S = 15


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """Where an arm's bridge and gateways live.

    Attributes:
        gateways: settings file by gateway id.
    """

    fleet: str
    bridge: Path
    gateways: dict[str, Path]

    @property
    def bridge_settings(self) -> Path:
        """The bridge's settings file."""
        return self.bridge / "bridge.toml"

    @property
    def keys(self) -> Path:
        """The fleet's keys."""
        return self.bridge / "keys"


def make_fleet(
    directory: Path, fleet: str, strategy: str, groundwork: Groundwork, broker: BrokerProcess, *, seed: int
) -> FleetFolder:
    """Initialise a fleet and provision its gateways, as an operator would with ``server-bridge``.

    Raises:
        ConfigError, StorageError: as the two commands.
    """
    make_directory(directory)
    bridge, gateways = directory / "bridge", directory / "gateways"
    init_fleet(bridge, groundwork.bundle.path, fleet)
    folder = FleetFolder(fleet, bridge, {gateway: gateways / gateway / "agent.toml" for gateway in groundwork.streams})
    amend(folder.bridge_settings, bridge_sections(strategy, broker, seed=seed))
    enrol(folder.bridge_settings, list(groundwork.streams), gateways)
    for gateway, settings in folder.gateways.items():
        amend(settings, gateway_sections(groundwork, gateway, broker))
    return folder


def bridge_sections(strategy: str, broker: BrokerProcess, *, seed: int) -> Sections:
    """What the demo's bridge does otherwise than a new one: one quick adaptation."""
    return {
        "broker": {"host": broker.host, "port": broker.port, "keepalive_s": KEEPALIVE_S},
        "strategy": {"name": strategy},
        "trigger": {
            "min_flags": 2,
            "max_age_s": 600.0,
            "settle_s": 4.0,
            "min_samples": TRIGGER_SAMPLES,
            "min_samples_cap_s": 90.0,
            "cooldown_s": 3600.0,
        },
        "round": {
            "rounds": ROUNDS,
            "timeout_s": 60.0,
            "training_graph": "adam",
            "learning_rate": LEARNING_RATE,
            "first_learning_rate": FIRST_LEARNING_RATE,
            "epochs": LOCAL_EPOCHS,
            "batch_size": BATCH_SIZE,
            "min_samples": ROUND_LEAST_SAMPLES,
            "max_samples": ROUND_MOST_SAMPLES,
            "coding": "fp16",
            "seed": seed,
        },
    }


def gateway_sections(groundwork: Groundwork, gateway: str, broker: BrokerProcess) -> Sections:
    """What a gateway of the demo replays and how often it reports."""
    stream = groundwork.streams[gateway]
    return {
        "broker": {"host": broker.host, "port": broker.port, "keepalive_s": KEEPALIVE_S},
        "source": {
            "kind": "replay",
            "path": str(groundwork.stream_files[gateway].resolve()),
            "rate_hz": RATE_HZ,
            "loop": True,
            "loop_from_row": stream.rows_per_pass,
            "batch_size": SOURCE_BATCH_ROWS,
        },
        "monitor": {"bucket_s": stream.bucket_s},
        "training": {"max_rounds_per_hour": 1000},
        "samples": {"proof_share": 0.0, "max_samples": 20_000},
        "report": {"state_interval_s": STATE_INTERVAL_S},
    }
