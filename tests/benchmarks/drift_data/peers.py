"""Other libraries' detectors, run on the same streams in their own environments."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.drift_data.measure import NOT_RUN, RATES, TARGET, Swept
from tests.benchmarks.drift_data.streams import Drawn, Streams
from tests.benchmarks.drift_data.tasks import Judged, Rows

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "clma-edge" / "peers"
SIDES = Path(__file__).resolve().parents[1] / "drift_peers"
PINNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "river": ("river==0.26.1",),
        "frouros": ("frouros==0.9.0",),
        "alibi": ("alibi-detect==0.13.0", "torch==2.13.0"),
    }
)
INSTALL_S, RUN_S = 3600, 4 * 3600


@dataclass(frozen=True, slots=True)
class Peer:
    """A detector of a library.

    Attributes:
        library, detector: which.
        fed: what it is fed, see :func:`inputs`.
        expected_s: of CPU on one of the data sets, about; what is left of a run is told by it.
        curve: whether it is run at all rates or at one; one that gives a statistic is run at all of them anyway.
    """

    library: str
    detector: str
    fed: str
    expected_s: float
    curve: bool = False

    @property
    def name(self) -> str:
        """As the tables have it."""
        return f"{self.library} {self.detector} ({self.fed})"


LABELLED: tuple[Peer, ...] = (
    Peer("river", "ADWIN", "loss", 25, curve=True),
    Peer("river", "ADWIN", "error", 25, curve=True),
    Peer("river", "PageHinkley", "loss", 50, curve=True),
    Peer("river", "PageHinkley", "standard", 40, curve=True),
    Peer("river", "PageHinkley", "error", 60, curve=True),
    Peer("river", "HDDM_W", "error", 100),
    Peer("river", "HDDM_A", "error", 90),
    Peer("river", "DDM", "error", 100),
    Peer("river", "FHDDM", "error", 20),
    Peer("frouros", "CUSUM", "standard", 40),
    Peer("frouros", "GMA", "loss", 30),
    Peer("alibi", "FET", "error", 30),
    Peer("alibi", "CVM", "loss", 90),
    Peer("river", "KSWIN", "loss", 40),
    Peer("river", "EDDM", "error", 25),
    Peer("frouros", "RDDM", "error", 140),
    Peer("frouros", "ECDD-WT", "error", 30),
    Peer("frouros", "STEPD", "error", 20),
)

UNLABELLED: tuple[Peer, ...] = (
    Peer("river", "ADWIN each", "features", 150, curve=True),
    Peer("river", "ADWIN", "doubt", 15, curve=True),
    Peer("alibi", "LSDD", "features", 80),
    Peer("alibi", "MMD", "features", 130),
    Peer("river", "PageHinkley each", "features", 80, curve=True),
    Peer("river", "KSWIN each", "features", 150),
    Peer("frouros", "IncrementalKS each", "features", 120),
    Peer("alibi", "CVM", "doubt", 90),
    Peer("river", "KSWIN", "doubt", 40),
    Peer("frouros", "IncrementalKS", "doubt", 40),
)


def python_of(library: str) -> Path:
    """The interpreter of a library's environment, which is made where it is absent.

    Raises:
        RuntimeError: the library cannot be installed.
    """
    folder = CACHE / "-".join(PINNED[library]).replace("==", "-")
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    print(f"  {library}: its environment is made in {folder}, which takes minutes", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    command: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *PINNED[library]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(PINNED[library])} cannot be installed: {done.stderr[-500:]}")
    (folder / "complete").touch()
    return python


def sweep(peer: Peer, drawn: Drawn, work: Path, budget_s: float) -> Swept:
    """A peer's alarms at the thresholds nearest to the benchmark's rates.

    Args:
        peer: the detector.
        drawn: the streams.
        work: folder for what goes in and comes out.
        budget_s: CPU seconds after which a rate is measured on the stationary streams run so far.

    Raises:
        RuntimeError: its environment cannot be made, or it ends with an error.
    """
    source = work / f"{drawn.task.name}-{peer.fed}.npz"
    if not source.exists():
        np.savez(source, **inputs(drawn, peer.fed))  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    goal = result(peer, drawn.task.name, work)
    if not goal.exists():
        job = {
            "detector": peer.detector,
            "rates": RATES,
            "target": RATES[TARGET],
            "curve": peer.curve,
            "budget_s": budget_s,
        }
        command: list[str | Path] = [
            python_of(peer.library),
            SIDES / f"{peer.library}_side.py",
            source,
            goal,
            json.dumps(job),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(f"{peer.name} failed on {drawn.task.name}: {done.stderr[-2000:]}")
        sys.stdout.flush()
    with np.load(goal) as found:
        return _swept(dict(found))


def result(peer: Peer, task: str, work: Path) -> Path:
    """Where a peer's alarms are kept."""
    return work / f"{task}-{peer.name.replace(' ', '-')}.npz"


def _swept(found: dict[str, NDArray[Any]]) -> Swept:
    """With the rates that a slow peer was not run at left open."""
    rates = np.full(len(RATES), np.nan)
    places = [RATES.index(target) for target in found["targets"]]
    rates[places] = found["rates"]
    alarms = {}
    for name in found:
        if name.startswith("alarms:"):
            every = np.full((len(RATES), found[name].shape[1]), NOT_RUN)
            every[places] = found[name]
            alarms[name.removeprefix("alarms:")] = every
    return Swept(rates, alarms)


def inputs(drawn: Drawn, fed: str) -> dict[str, NDArray[Any]]:
    """The arrays of ``drift_peers/sweep.py``.

    Args:
        drawn: the streams; wide where features or outputs are fed.
        fed: ``loss``, ``standard`` (the loss by the reference's mean and deviation), ``error``; ``features``, or
            ``doubt``: one less the chosen class's share, of a regression the output itself.
    """
    values = _INPUTS[fed]
    references = np.stack([values(_reference(rows, judged)) for rows, judged in drawn.references])
    middle, spread = references.mean(1), np.maximum(references.std(1), 1e-9)
    if fed != "standard":
        middle, spread = np.zeros_like(middle), np.ones_like(spread)
    found: dict[str, NDArray[Any]] = {"reference": (references - middle[:, None]) / spread[:, None]}
    every = {"stationary": drawn.stationary} | {f"drift:{kind}": streams for kind, streams in drawn.drifts.items()}
    for name, streams in every.items():
        found[name] = (values(streams) - middle[streams.groups, None]) / spread[streams.groups, None]
        kind = name.removeprefix("drift:")
        found[f"groups:{kind}"] = streams.groups
        found[f"lengths:{kind}"] = streams.lengths
        found[f"begins:{kind}"] = streams.begins
    found["stationary_groups"] = found.pop("groups:stationary")
    return {name: one.astype(np.float32) if one.dtype == np.float64 else one for name, one in found.items()}


def _reference(rows: Rows, judged: Judged) -> Streams:
    nowhere = np.zeros(1, np.intp)
    return Streams(
        judged.losses,
        judged.errors,
        nowhere,
        nowhere,
        nowhere,
        rows.features.astype(np.float32),
        judged.outputs.astype(np.float32),
    )


def _features(streams: Streams) -> NDArray[Any]:
    if streams.features is None:
        raise ValueError("the streams have no features: draw them wide")
    return streams.features


def _doubt(streams: Streams) -> NDArray[Any]:
    outputs = streams.outputs
    if outputs is None:
        raise ValueError("the streams have no outputs: draw them wide")
    if outputs.shape[-1] == 1:
        return outputs[..., 0]
    shares = np.exp(outputs - outputs.max(-1, keepdims=True))
    doubt: NDArray[Any] = 1 - shares.max(-1) / shares.sum(-1)
    return doubt


_INPUTS: Mapping[str, Callable[[Streams], NDArray[Any]]] = MappingProxyType(
    {
        "loss": lambda streams: streams.losses,
        "standard": lambda streams: streams.losses,
        "error": lambda streams: streams.errors,
        "features": _features,
        "doubt": _doubt,
    }
)
