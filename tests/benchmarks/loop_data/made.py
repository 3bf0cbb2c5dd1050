"""Folders of a gateway that replays random samples to a net."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from server_bridge.demo.settings_files import Sections, amend
from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.benchmarks.loop_data.looped import STREAM
from tests.benchmarks.step_data.cases import Case
from tests.benchmarks.step_data.made import CALIBRATION_ROWS, make
from tests.benchmarks.step_data.nets import INPUT

GATEWAY = "gw1"
RATE_HZ = 1000.0
LABEL_DELAY_S = 0.25
HOLDOUT_SHARE = 0.1
NOBODY_LISTENS = 1


@dataclass(frozen=True, slots=True)
class Made:
    """Where things lie.

    Attributes:
        case: with the net's bundle, ``bundle``, and ``net.onnx``.
        settings: a provisioned gateway's ``agent.toml``; it has not run.
    """

    case: Path
    settings: Path


def made(
    case: Case,
    folder: Path,
    *,
    rows: int,
    batch: int,
    port: int = NOBODY_LISTENS,
    calibration_rows: int = CALIBRATION_ROWS,
) -> Made:
    """A net's bundle, a provisioned gateway, and a recording of labelled samples.

    Args:
        rows: of the recording.
        batch: samples that the source gives at a time.
        port: of a broker.
        calibration_rows: of the bundle's reference: monitors that promise little enough need thousands.
    """
    make(case, folder / "case", calibration_rows=calibration_rows)
    init_fleet(folder / "bridge", folder / "case" / "bundle", "loop")
    (gateway,) = provision_gateway(folder / "bridge", [GATEWAY], folder / "gateways")
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {INPUT: rng.normal(size=(rows, *case.shape)).astype(np.float32)}
    columns |= {"label": rng.integers(0, case.classes, rows), "holdout": rng.random(rows) < HOLDOUT_SHARE}
    np.savez(gateway / STREAM, **columns)
    sections: Sections = {
        "source": {
            "kind": "replay",
            "path": STREAM,
            "rate_hz": RATE_HZ,
            "batch_size": batch,
            "delay_s": LABEL_DELAY_S,
        },
        "broker": {"host": "127.0.0.1", "port": port},
    }
    amend(gateway / "agent.toml", sections)
    return Made(folder / "case", gateway / "agent.toml")
