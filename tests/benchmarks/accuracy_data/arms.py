"""Estimates side by side on the same windows: ours, a plain CBPE, and NannyML's in its own environment."""

import json
import os
import subprocess
import venv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.calibrate import calibrate_accuracy
from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState, latest, step
from edge_agent.drift.label_shift import softmax
from edge_agent.drift.losses import LossName, sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference

Floats = NDArray[np.float64]

WINDOW, BATCH = 500, 50
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "clma-edge" / "peers"
SIDE = Path(__file__).resolve().parents[1] / "accuracy_peers" / "nannyml_side.py"
PINNED = ("nannyml==0.13.1", "statsmodels", "plotly", "scikit-learn")
INSTALL_S, RUN_S = 1800, 1800
TOO_FEW = "The least populated classes in y have only 1 member"


@dataclass(frozen=True, slots=True)
class Shown:
    """A window, and what is true of it.

    Attributes:
        case: what it belongs to in the tables, such as the strength of a shift.
        truth: accuracy, or mean clipped loss.
        ours: with the monitor begun anew for this window.
        held: with the monitor that saw the stream's windows before; None: it is no stream.
    """

    case: str
    truth: float
    ours: AccuracyEstimate
    outputs: Floats = field(repr=False)
    labels: NDArray[np.float64] = field(repr=False)
    held: AccuracyEstimate | None = None


class Estimator:
    """Ours, calibrated with the outputs of one net on held-out rows."""

    def __init__(self, features: Floats, outputs: Floats, labels: NDArray[np.float64], classes: int, seed: int) -> None:
        self.classes = classes
        self.loss: LossName = "cross-entropy" if classes else "mae"
        width = features.shape[1]
        reference = Reference(
            _seen(features, outputs),
            sample_losses(self.loss, outputs, labels),
            labels,
            classes or None,
            np.zeros(len(labels), np.int64),
            tuple(map(str, range(width))),
            ("",) * width,
        )
        rng = np.random.default_rng(seed)
        self.params: AccuracyParams = calibrate_accuracy(reference, batch_size=BATCH, rng=rng, window=WINDOW)
        self.state = AccuracyState.start(self.params)
        self.reference = (outputs, labels)

    def show(self, case: str, features: Floats, outputs: Floats, labels: NDArray[np.float64], *, go_on: bool) -> Shown:
        """One window; ``go_on``: as the next one of a stream, too."""
        _, ours = self._window(AccuracyState.start(self.params), features, outputs)
        held = None
        if go_on:
            self.state, held = self._window(self.state, features, outputs)
        return Shown(case, self.truth(outputs, labels), ours, outputs, labels, held)

    def truth(self, outputs: Floats, labels: NDArray[np.float64]) -> float:
        """What was to be estimated."""
        if self.classes:
            return float((outputs.argmax(axis=1) == labels).mean())
        return float(np.minimum(sample_losses("mae", outputs, labels), self.params.clip).mean())

    def _window(
        self, state: AccuracyState, features: Floats, outputs: Floats
    ) -> tuple[AccuracyState, AccuracyEstimate]:
        for start in range(0, WINDOW, BATCH):
            rows = slice(start, start + BATCH)
            state, _ = step(self.params, state, _seen(features[rows], outputs[rows]))
        found = latest(self.params, state)
        if found is None:
            raise RuntimeError("a full window has no estimate")
        return state, found


def plain_cbpe(outputs: Floats) -> float:
    """The mean of the largest probability, uncalibrated."""
    return float(softmax(outputs).max(axis=1).mean())


def nannyml(reference: tuple[Floats, NDArray[np.float64]], windows: list[Shown], work: Path) -> Floats:
    """(n, 3) value, low and high of NannyML's CBPE on windows of one reference; its own bounds.

    NaN where it cannot be fitted, which it says itself: a class with one row in the reference.

    Raises:
        RuntimeError: its environment cannot be made, or it ends with another error.
    """
    outputs, labels = reference
    source, goal = work / "windows.npz", work / "estimates.npz"
    shown = np.concatenate([softmax(window.outputs) for window in windows])
    np.savez(source, reference=softmax(outputs), labels=labels, shown=shown, window=np.array(WINDOW))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [str(_python()), str(SIDE), str(source), str(goal)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False, env=environment)
    if TOO_FEW in done.stderr:
        return np.full((len(windows), 3), np.nan)
    if done.returncode:
        raise RuntimeError(f"NannyML failed: {done.stderr[-2000:]}")
    with np.load(goal) as found:
        return np.asarray(found["estimates"], np.float64)


def _python() -> Path:
    """The interpreter of NannyML's environment, made if it is not there."""
    folder = CACHE / "nannyml"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", *PINNED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{json.dumps(PINNED)} cannot be installed: {done.stderr[-500:]}")
    (folder / "complete").touch()
    return python


def _seen(features: Floats, outputs: Floats) -> Observed:
    return Observed([str(row) for row in range(len(features))], np.zeros(len(features)), features, outputs)
