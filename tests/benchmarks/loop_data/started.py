"""How soon the real agent predicts, and what it weighs while it serves, beside a bare script that does no more."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from server_bridge.demo.settings_files import amend

PROGRAM = Path(sys.executable).parent / "edge-agent"
FIRST_S, STOP_S, LOOK_S = 60.0, 15.0, 0.002
_BARE = """
import numpy as np
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession({net!r}, options, providers=["CPUExecutionProvider"])
x = np.load({stream!r})["x"]
out = session.run(None, {{"x": x[:1]}})
open({told!r}, "w").write("predicted")
import time
until = time.monotonic() + {serve_s}
row = 0
while time.monotonic() < until:
    session.run(None, {{"x": x[row % len(x) : row % len(x) + 1]}})
    row += 1
    time.sleep(0.01)
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds of clock and of CPU from the process's start to its first prediction, and its peak resident bytes."""

    first_s: float
    first_cpu_s: float
    peak_bytes: int


def bare(net: Path, stream: Path, folder: Path, *, serve_s: float) -> Start:
    """A script: imports, a session, a prediction, and then one each hundredth of a second."""
    told = folder / "bare.told"
    code = _BARE.format(net=str(net), stream=str(stream), told=str(told), serve_s=serve_s)
    return _started([sys.executable, "-c", code], told, folder, serve_s=serve_s)


def agent(settings: Path, folder: Path, *, serve_s: float) -> Start:
    """``edge-agent run``, all its parts; its broker does not answer, as on a gateway whose link is down."""
    told = settings.parent / "predictions.jsonl"
    amend(settings, {"sink": {"kind": "jsonl", "path": told.name}, "gateway": {"data_dir": "started"}})
    return _started([str(PROGRAM), "run", "-c", str(settings)], told, folder, serve_s=serve_s)


def _started(command: list[str], told: Path, folder: Path, *, serve_s: float) -> Start:
    told.unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_compiled(folder))
        try:
            _wait(process, lambda: told.exists() and told.stat().st_size > 0)
            first_s, first_cpu_s = time.perf_counter() - began_s, _cpu_s(process.pid)
            time.sleep(serve_s * 0.9)
            return Start(first_s, first_cpu_s, _peak_bytes(process.pid))
        finally:
            process.terminate()
            process.wait(STOP_S)


def _compiled(folder: Path) -> dict[str, str]:
    """The environment in which modules are compiled once, as an installed program's are."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def _wait(process: "subprocess.Popen[bytes]", seen: Callable[[], bool]) -> None:
    until_s = time.monotonic() + FIRST_S
    while not seen():
        if process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"no prediction from {process.args!r}: exit code {process.poll()}")
        time.sleep(LOOK_S)


def _cpu_s(pid: int) -> float:
    """Of all its threads that live, in the kernel's nanoseconds: its ticks are ten milliseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no VmHWM")
