"""Many gateways on one bridge and one mosquitto: what flags and rounds of a 2.1 MB model cost.

``python -m tests.benchmarks fleet_load [--gateways 200,1000] [--rounds 2] [--save]``. The bridge and the broker are
the real ones in their own processes; gateways are simulated, a few hundred a process.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.demo.broker import Mosquitto
from server_bridge.demo.children import Children
from server_bridge.demo.settings_files import amend
from server_bridge.fleet.registry import register
from server_bridge.releases.provision import init_fleet
from server_bridge.store.adaptations import RUNNING, RoundRecord
from server_bridge.store.store import Store, store_url
from tests.benchmarks.load.gateways import Account, Plan
from tests.benchmarks.load.meter import Meter, cpu_seconds
from tests.benchmarks.report import RESULTS

FLEET = "load"
WIDTHS = (256, 1024, 256, 4)
PROCESSES = 4
ROUNDS = 2
LIMIT_S = 900.0
POLL_S = 0.2
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Load:
    """One measured run.

    Attributes:
        flags: sent, acknowledged to gateways, and in the bridge's store.
        acknowledged_ms: median and 95th percentile from sending a flag to its acknowledgement.
        rounds: of each: seconds, and how many gateways counted or failed.
        peaks_mb: by phase, in MB of 10^6 bytes.
        up_mb, down_mb: between all gateways and the broker, everything.
    """

    gateways: int
    connect_s: float
    flags: dict[str, int]
    flags_s: float
    acknowledged_ms: dict[str, float]
    rounds: list[dict[str, float | int]]
    peaks_mb: dict[str, dict[str, float]]
    cpu_s: dict[str, float]
    up_mb: float
    down_mb: float
    blob_folder_mb: float
    failures: list[str]


def main(arguments: Sequence[str]) -> None:
    """Measure each fleet size in turn and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks fleet_load")
    parser.add_argument("--gateways", default="200,1000", help="fleet sizes (default 200,1000)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the adaptation (default {ROUNDS})")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    given = parser.parse_args(arguments)
    loads = []
    for size in (int(word) for word in given.gateways.split(",")):
        with tempfile.TemporaryDirectory(prefix="fleet-load-") as folder:
            loads.append(measure(size, Path(folder), rounds=given.rounds))
        print(json.dumps(asdict(loads[-1]), indent=2), flush=True)
    if given.save:
        save(loads)


def save(loads: Sequence[Load], folder: Path = RESULTS) -> Path:
    """Write the results as JSON, with the date and the machine."""
    content = {
        "title": f"A fleet on one bridge: MLP {'-'.join(map(str, WIDTHS))}, fp16 updates",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "loads": [asdict(load) for load in loads],
    }
    path = folder / "fleet_load.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def measure(
    gateways: int,
    folder: Path,
    *,
    widths: Sequence[int] = WIDTHS,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    limit_s: float = LIMIT_S,
) -> Load:
    """Run one fleet through flags and an adaptation.

    Raises:
        TimeoutError: it took longer than ``limit_s``.
    """
    broker = Mosquitto(folder / "broker")
    broker.start()
    try:
        bridge_dir = folder / "bridge"
        bundle = _bundle(folder, widths)
        init_fleet(bridge_dir, bundle.path, FLEET)
        _settings(bridge_dir, broker, gateways, rounds, limit_s)
        store = Store(store_url(bridge_dir), bridge_dir / "blobs")
        names = [f"gw{number:04d}" for number in range(gateways)]
        try:
            with store.transaction():
                for name in names:
                    register(store.gateways, name, time.time())
            with Children(folder / "logs") as children:
                bridge = children.start("bridge", "server-bridge", ["run", "-c", str(bridge_dir / "bridge.toml")])
                meter = Meter(bridge.process.pid, broker.pid, broker.port)
                try:
                    with _simulators(_plans(names, bundle, broker, processes)) as simulators:
                        return _Run(store, children, meter, simulators, broker, bridge_dir, limit_s).measure(names)
                finally:
                    meter.stop()
        finally:
            store.close()
    finally:
        broker.kill()


class _Run:
    def __init__(
        self,
        store: Store,
        children: Children,
        meter: Meter,
        simulators: "list[subprocess.Popen[str]]",
        broker: Mosquitto,
        bridge_dir: Path,
        limit_s: float,
    ) -> None:
        self._store = store
        self._children = children
        self._meter = meter
        self._simulators = simulators
        self._broker = broker
        self._bridge_dir = bridge_dir
        self._deadline_s = time.monotonic() + limit_s

    def measure(self, names: list[str]) -> Load:
        count = len(names)
        self._meter.phase("connect")
        began_s = time.monotonic()
        for simulator in self._simulators:
            _hear(simulator, "ready")
        self._wait("states of all", lambda: len(self._store.gateways.states()) == count)
        connected_s = time.monotonic() - began_s
        self._meter.phase("flags")
        began_s = time.monotonic()
        self._order("flag")
        self._wait("flags of all", lambda: len(self._store.flags.all()) >= count)
        flagged_s = time.monotonic() - began_s
        self._meter.phase("rounds")
        self._wait("the adaptation", self._adapted)
        self._meter.phase("after")
        bridge_pid = self._children.members["bridge"].process.pid
        cpu_s = {"bridge": cpu_seconds(bridge_pid), "broker": cpu_seconds(self._broker.pid)}
        accounts = self._accounts()
        return Load(
            gateways=count,
            connect_s=round(connected_s, 1),
            flags={
                "sent": sum(account.flags_sent for account in accounts),
                "acknowledged": sum(account.flags_acknowledged for account in accounts),
                "stored": len({flag.gateway for flag in self._store.flags.all()}),
            },
            flags_s=round(flagged_s, 1),
            acknowledged_ms=_latencies([one for account in accounts for one in account.acknowledged_s]),
            rounds=[_round(record) for record in self._store.adaptations.rounds("a1")],
            peaks_mb={
                phase: {name: round(value / 1e6, 1) for name, value in asdict(peaks).items()}
                for phase, peaks in self._meter.peaks.items()
            },
            cpu_s=cpu_s,
            up_mb=round(sum(account.up_bytes for account in accounts) / 1e6, 1),
            down_mb=round(sum(account.down_bytes for account in accounts) / 1e6, 1),
            blob_folder_mb=round(_folder_bytes(self._bridge_dir / "blobs") / 1e6, 1),
            failures=[one for account in accounts for one in account.failures][:20],
        )

    def _adapted(self) -> bool:
        adaptations = self._store.adaptations.all()
        return bool(adaptations) and adaptations[0].status != RUNNING

    def _order(self, word: str) -> None:
        for simulator in self._simulators:
            assert simulator.stdin is not None
            simulator.stdin.write(word + "\n")
            simulator.stdin.flush()

    def _accounts(self) -> list[Account]:
        self._order("end")
        return [Account(**json.loads(_line(simulator))) for simulator in self._simulators]

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        while not done():
            self._children.check()
            if time.monotonic() > self._deadline_s:
                raise TimeoutError(f"still waiting for: {what}\n{self._children.members['bridge'].log_tail()}")
            time.sleep(POLL_S)


def _round(record: RoundRecord) -> dict[str, float | int]:
    return {
        "round": record.round,
        "seconds": round(record.ended_s - record.started_s, 1),
        "counted": len(record.replied),
        "failed": len(record.failed),
        "cohorts": len(record.weights),
    }


def _latencies(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {f"p{share}": round(float(np.percentile(seconds, share)) * 1e3, 1) for share in (50, 95, 100)}


def _bundle(folder: Path, widths: Sequence[int]) -> Bundle:
    rng = np.random.default_rng(0)
    np.savez(
        folder / "calibration.npz",
        x=rng.normal(size=(400, widths[0])).astype(np.float32),
        label=rng.integers(0, widths[-1], 400),
    )
    settings = BuildSettings(trainable=["w*", "b*"], loss="cross-entropy", name="load")
    return build_bundle(_net(widths, rng), folder / "calibration.npz", settings, folder / "bundle")


def _net(widths: Sequence[int], rng: np.random.Generator) -> onnx.ModelProto:
    nodes, tensors, value = [], {}, "x"
    for number, (fan_in, fan_out) in enumerate(itertools.pairwise(widths), start=1):
        tensors[f"w{number}"] = rng.normal(size=(fan_in, fan_out)) * (2 / fan_in) ** 0.5
        tensors[f"b{number}"] = np.zeros(fan_out)
        last = number == len(widths) - 1
        out = "logits" if last else f"h{number}"
        nodes.append(helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [out]))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"a{number}"]))
        value = f"a{number}"
    graph = helper.make_graph(
        nodes,
        "load",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", widths[0]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", widths[-1]])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _settings(bridge_dir: Path, broker: Mosquitto, gateways: int, rounds: int, limit_s: float) -> None:
    amend(
        bridge_dir / "bridge.toml",
        {
            "broker": {"host": broker.host, "port": broker.port},
            "trigger": {"min_flags": gateways, "settle_s": 1.0, "min_samples": 100, "min_samples_cap_s": 60.0},
            "round": {"rounds": rounds, "timeout_s": limit_s / 2, "coding": "fp16"},
        },
    )


def _plans(names: Sequence[str], bundle: Bundle, broker: Mosquitto, processes: int) -> list[Plan]:
    return [
        Plan(
            host=broker.host,
            port=broker.port,
            fleet=FLEET,
            gateways=list(names[number::processes]),
            bundle=bundle.digest,
            weights=bundle.manifest.files["weights.safetensors"],
            shapes={spec.name: list(spec.shape) for spec in bundle.manifest.trainable},
        )
        for number in range(processes)
    ]


@contextmanager
def _simulators(plans: Sequence[Plan]) -> "Iterator[list[subprocess.Popen[str]]]":
    command = [sys.executable, "-m", "tests.benchmarks.load.gateways"]
    started: list[subprocess.Popen[str]] = []
    try:
        for plan in plans:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
            )
            started.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(plan)) + "\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _hear(process: "subprocess.Popen[str]", word: str) -> None:
    heard = _line(process).strip()
    if heard != word:
        raise AssertionError(f"a simulator said {heard!r}, not {word!r}")


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
