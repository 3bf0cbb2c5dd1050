"""A whole bridge as an operator runs it, with scripted gateways on a real broker."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from typer.testing import CliRunner

from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages import Event, FlagEvent, Train
from edge_agent.wire.tensors import Weights
from edge_agent.wire.topics import FleetTopics
from server_bridge.cli.commands import app
from server_bridge.releases.record import FileReleaseBook, ReleaseRecord
from server_bridge.store.blobs import BlobFolder
from server_bridge.store.recovery import copies_of
from tests.broker import Mosquitto
from tests.fleet.scripted import ScriptedGateway
from tests.flower.memory_fleet import Learn
from tests.training.tiny_bundle import tiny_bundle, tiny_weights

FLEET = "line1"
GATEWAYS = ("g1", "g2", "g3")
WAIT_S = 120.0
STOP_S = 15.0
"""What its unit allows: ``TimeoutStopSec``."""
SETTINGS = """
[trigger]
min_flags = 2
settle_s = 0.5
min_samples = 10
cooldown_s = 1000
[round]
rounds = 2
timeout_s = 20
training_graph = "sgd"
coding = "fp32"
"""


class FolderBlobs(Mapping[str, bytes]):
    """What a gateway would download, read from the bridge's folder."""

    def __init__(self, directory: Path) -> None:
        self._folder = BlobFolder(directory)

    def __getitem__(self, digest: str) -> bytes:
        return self._folder.read(digest)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def shifted(step: float, own: int) -> Learn:
    """A common pattern, and a little of its own: two gateways never send the same update."""

    def learn(base: Weights, order: Train) -> Weights:
        pattern = np.arange(base["w"].size, dtype=np.float32).reshape(base["w"].shape) % 3 - 1
        noise = np.random.default_rng(own).normal(size=pattern.shape)
        return {"w": (step * (pattern + 0.01 * noise)).astype(np.float32), "b": np.zeros_like(base["b"])}

    return learn


def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come in time"
        time.sleep(0.05)


class Plant:
    """A fleet's folder, its bridge process and its gateways."""

    def __init__(self, path: Path, broker: Mosquitto) -> None:
        self.path = path
        self.folder = path / "bridge"
        self.settings = BrokerSettings(broker.host, broker.port)
        bundle = tiny_bundle(path / "tiny")
        self.bundle = bundle.digest
        self.bridge: subprocess.Popen[bytes] | None = None
        self.began_s = self.start_s = 0.0
        address = f"{broker.host}:{broker.port}"
        self.cli("init", "--bundle", str(bundle.path), "-d", str(self.folder), "--fleet", FLEET, "--broker", address)
        self.config = self.folder / "bridge.toml"
        self.cli("gateway", "provision", *GATEWAYS, "-o", str(path / "gateways"), "-c", str(self.config))
        with self.config.open("a", encoding="utf-8") as file:
            file.write(SETTINGS)
        self.gateways: dict[str, ScriptedGateway] = {}

    def cli(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def start_bridge(self) -> None:
        command = [sys.executable, "-c", "from server_bridge.cli import main; main()", "run", "-c", str(self.config)]
        self.began_s = time.monotonic()
        with (self.path / "bridge.log").open("ab") as log:
            self.bridge = subprocess.Popen(command, stderr=log)

    def has_started(self) -> None:
        """To be called when it has: how long that took."""
        self.start_s = time.monotonic() - self.began_s

    def in_time(self, took_s: float) -> bool:
        """Within what its unit allows to end; where its start takes longer than that, the machine is slow."""
        return took_s < max(STOP_S, self.start_s)

    def end_bridge(self, number: int) -> tuple[int, float]:
        assert self.bridge is not None
        began_s = time.monotonic()
        self.bridge.send_signal(number)
        status = self.bridge.wait(WAIT_S)
        return status, time.monotonic() - began_s

    @property
    def record(self) -> ReleaseRecord:
        latest = FileReleaseBook(self.folder / "releases").latest()
        assert latest is not None
        return latest[0]

    def verify(self, key_id: str, signature: bytes, body: bytes) -> bool:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.record.fleet.command_keys[key_id].public))
        try:
            public.verify(signature, body)
        except InvalidSignature:
            return False
        return True

    def flag(self, gateway: str, number: int = 0) -> None:
        body = FlagEvent(
            flag_id=sha256_hex(f"{gateway} {number}".encode()),
            monitor="loss-rise",
            firing=number,
            bundle=self.bundle,
            weights=self.record.cohorts[0].current.weights.digest,
            weights_version=1,
            cohort="root",
            first_drifted_sample="s",
            first_drifted_time_s=0.0,
            statistic=1.0,
            threshold=0.5,
            trainable_samples=50,
        )
        event = Event(gateway=gateway, epoch="e", sequence=number, low=0, time_s=0.0, body=body)
        self.gateways[gateway].publish(FleetTopics(FLEET).event(gateway), event)

    def start_everything(self, *, g2: float = 0.5) -> None:
        """The scripted gateways have no outbox, so they speak only when the bridge hears them; ``g2`` is its step."""
        self.start_bridge()
        learns = {"g1": shifted(0.5, 1), "g2": shifted(g2, 2), "g3": shifted(0.001, 3)}
        self.gateways = {
            name: ScriptedGateway(
                self.settings, FLEET, name, FolderBlobs(self.folder / "blobs"), learns[name], self.verify
            )
            for name in GATEWAYS
        }
        for gateway in self.gateways.values():
            gateway.start()
        until(lambda: [row["online"] for row in self.fleet()] == [True] * 3)
        self.has_started()

    def fleet(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(self.cli("fleet", "--json", "-c", str(self.config)))
        return rows

    def log(self) -> list[str]:
        decisions = json.loads(self.cli("log", "--json", "-c", str(self.config)))
        return [f"{decision['kind']}:{decision['reason']}" for decision in decisions]

    def stop(self) -> None:
        for gateway in self.gateways.values():
            gateway.stop()
        if self.bridge is not None and self.bridge.poll() is None:
            self.bridge.kill()
            self.bridge.wait(WAIT_S)


@pytest.fixture
def plant(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path, mosquitto)
    yield made
    made.stop()


def test_flags_become_a_signed_release_and_sigterm_ends_in_time(plant: Plant) -> None:
    plant.start_everything()
    plant.flag("g1")
    plant.flag("g2")
    until(lambda: plant.record.number == 2)
    until(lambda: "adaptation-done:released" in plant.log())
    record = plant.record
    assert {name: member.cohort for name, member in record.members.items()} == {"g1": "c1", "g2": "c1"}
    assert {(one.cohort, one.current.version) for one in record.cohorts} == {("root", 2), ("c1", 1)}
    assert record.cohorts[0].current.weights != record.cohorts[1].current.weights
    decisions = [line for line in plant.log() if not line.startswith("wait:")]
    assert decisions == [
        "bridge:started",
        "start:flags-settled",
        "round:committed",
        "round:committed",
        "adaptation-done:released",
    ]
    assert [(row["id"], row["online"], row["flag"]) for row in plant.fleet()] == [
        ("g1", True, "consumed"),
        ("g2", True, "consumed"),
        ("g3", True, None),
    ]
    assert "c1" not in plant.cli("fleet", "-c", str(plant.config))
    until(lambda: _copied_adaptations(plant) == ["done"])  # soon after the release
    status, took_s = plant.end_bridge(signal.SIGTERM)
    assert status == 0
    assert plant.in_time(took_s)
    until(lambda: _children_of(plant) == [])


def test_an_operator_lets_cohorts_go_into_others_while_the_bridge_runs_and_while_it_does_not(plant: Plant) -> None:
    plant.start_everything(g2=-0.5)
    plant.flag("g1")
    plant.flag("g2")
    until(lambda: "adaptation-done:released" in plant.log())
    released = _weights(plant)
    assert set(released) == {"root", "c1", "c2"}
    mover = next(name for name, member in plant.record.members.items() if member.cohort == "c2")
    told = plant.cli(
        "cohorts", "merge", "c2", "c1", "--unlike", "--by", "ann", "--why", "alike", "-c", str(plant.config)
    )
    assert told == "cohort c2 went into c1: release 3\n"
    assert {name: member.cohort for name, member in plant.record.members.items()} == {"g1": "c1", "g2": "c1"}
    assert _weights(plant) == {name: released[name] for name in ("root", "c1")}
    assert f"{mover}: c2 -> c1: merge-asked" in plant.cli("cohorts", "--history", "-c", str(plant.config))
    assert "asked by ann at" in plant.cli("cohorts", "explain", mover, "-c", str(plant.config))
    assert plant.log()[-2:] == ["cohorts:merge-asked", "cohorts:merged"]
    assert plant.end_bridge(signal.SIGTERM)[0] == 0
    told = plant.cli("cohorts", "merge", "c1", "root", "-c", str(plant.config))
    assert "queued: cohort c1 goes into root when the bridge is started" in told
    assert plant.record.number == 3
    plant.start_bridge()
    until(lambda: plant.log()[-1] == "cohorts:merged")
    assert (plant.record.number, plant.record.members, _weights(plant)) == (4, {}, {"root": released["root"]})


def _weights(plant: Plant) -> dict[str, str]:
    return {one.cohort: one.current.weights.digest for one in plant.record.cohorts}


def _copied_adaptations(plant: Plant) -> list[str]:
    """By the newest copy; another takes its place meanwhile, perhaps."""
    for found in copies_of(plant.folder / "store.db").all():
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"{found.path.as_uri()}?mode=ro", uri=True)) as copy,
        ):
            return [status for (status,) in copy.execute("SELECT status FROM adaptations")]
    return []


def test_a_bridge_killed_in_mid_round_finishes_the_adaptation_when_it_is_back(plant: Plant) -> None:
    plant.start_everything()
    plant.gateways["g3"].muted.set()
    plant.flag("g1")
    plant.flag("g2")
    until(lambda: bool(plant.gateways["g1"].trained and plant.gateways["g2"].trained))
    plant.end_bridge(signal.SIGKILL)
    plant.gateways["g3"].muted.clear()
    plant.start_bridge()
    until(lambda: plant.record.number == 2)
    assert [len(gateway.trained) for gateway in plant.gateways.values()] == [2, 2, 2]
    assert {name: member.cohort for name, member in plant.record.members.items()}.keys() == {"g1", "g2"}
    status, took_s = plant.end_bridge(signal.SIGTERM)
    assert (status, plant.in_time(took_s)) == (0, True)


def test_two_bridges_do_not_run_in_one_folder(plant: Plant) -> None:
    plant.start_bridge()
    until(lambda: "bridge:started" in plant.log())
    command = [sys.executable, "-c", "from server_bridge.cli import main; main()", "run", "-c", str(plant.config)]
    second = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
    assert second.returncode == 2
    assert b"another bridge runs" in second.stderr


def test_a_training_graph_that_the_bundle_lacks_is_named_with_those_it_has(plant: Plant) -> None:
    plant.config.write_text(plant.config.read_text().replace('training_graph = "sgd"', 'training_graph = "sdg"'))
    command = [sys.executable, "-c", "from server_bridge.cli import main; main()", "run", "-c", str(plant.config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 2
    assert "[round] training_graph = 'sdg'" in ended.stderr
    assert "it has 'sgd'; did you mean 'sgd'?" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("scalars", "words"),
    [
        ("{ momentum = 0.5 }", "training graph 'sgd' has no scalar 'momentum' to set (it has none)"),
        ('{ momentum = "much" }', "scalars.momentum"),
    ],
)
def test_scalars_that_the_training_graph_does_not_take_are_named(plant: Plant, scalars: str, words: str) -> None:
    text = plant.config.read_text()
    plant.config.write_text(text.replace('training_graph = "sgd"', f'training_graph = "sgd"\nscalars = {scalars}'))
    command = [sys.executable, "-c", "from server_bridge.cli import main; main()", "run", "-c", str(plant.config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 2
    assert words in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_mean_that_the_strategy_does_not_take_is_refused_at_the_start(plant: Plant) -> None:
    text = plant.config.read_text()
    name = re.search(r'\[strategy\]\nname = "[a-z-]+"\n', text)
    lines = '[strategy]\nname = "fedavg"\naggregation = "krum"\n'
    plant.config.write_text(text.replace(name[0], lines) if name else f"{text}\n{lines}")
    command = [sys.executable, "-c", "from server_bridge.cli import main; main()", "run", "-c", str(plant.config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 2
    assert "'krum' is not for fedavg" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_bridge_starts_without_a_broker_and_still_stops_in_time(plant: Plant, mosquitto: Mosquitto) -> None:
    mosquitto.stop()
    plant.start_bridge()
    until(lambda: "bridge:started" in plant.log())
    plant.has_started()
    time.sleep(0.5)
    status, took_s = plant.end_bridge(signal.SIGTERM)
    assert (status, plant.in_time(took_s)) == (0, True)


def test_keys_that_are_away_are_told_at_the_start_and_the_bridge_runs_on(plant: Plant) -> None:
    key = plant.folder / "keys" / "online" / "command.pem"
    key.rename(plant.path / "command.pem")
    plant.start_bridge()
    until(lambda: "bridge:started" in plant.log())
    plant.has_started()
    status, took_s = plant.end_bridge(signal.SIGTERM)
    assert (status, plant.in_time(took_s)) == (0, True)
    lines = [json.loads(line) for line in (plant.path / "bridge.log").read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "signing-keys-absent"]
    assert told["files"] == [str(key)]
    assert "bring them back" in told["hint"]


def _children_of(plant: Plant) -> list[int]:
    assert plant.bridge is not None
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(str(plant.folder)) in words:
                found.append(int(entry.name))
    return found


def test_initial_weights_are_release_one(plant: Plant) -> None:
    (cohort,) = plant.record.cohorts
    from edge_agent.wire.tensors import encode_weights

    assert cohort.current.weights.digest == sha256_hex(encode_weights(tiny_weights()))
