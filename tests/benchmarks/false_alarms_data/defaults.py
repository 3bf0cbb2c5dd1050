"""river's detectors, all at their defaults, on streams without drift."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edge_agent.drift.promise.blocks import Blocks, dependence
from edge_agent.drift.sequential.calibration import judged_series
from tests.benchmarks.drift_data.peers import RUN_S, SIDES, python_of
from tests.benchmarks.false_alarms_data.level import Rate
from tests.benchmarks.false_alarms_data.worlds import BATCH, WORLDS, Floats, stretches

STREAM_BATCHES = 500


def peers_at_defaults(data: Path | None, batches: int) -> Iterator[Rate]:
    """False alarms a batch by data and detector.

    Args:
        data: folder of the real data; None: generated streams alone.
        batches: of each case, fewer for slow detectors.

    Raises:
        RuntimeError: river's environment cannot be made, or it ends with an error.
    """
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "streams.npz"
        np.savez(source, **_cases(data, max(1, batches // STREAM_BATCHES)))  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
        done = subprocess.run(
            [python_of("river"), SIDES / "river_defaults.py", source],
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise RuntimeError(f"river's detectors failed: {done.stderr[-2000:]}")
    for case, detectors in json.loads(done.stdout).items():
        for detector, (alarms, samples) in detectors.items():
            yield Rate("peers", f"river {detector}, {case}", 0.0, alarms, samples // BATCH)


def _cases(data: Path | None, streams: int) -> dict[str, Floats]:
    length = STREAM_BATCHES * BATCH
    rng = np.random.default_rng(5)
    found = {world.name: world.losses(streams, length, rng) for world in WORLDS}
    for stretch in [] if data is None else stretches(data):
        blocks = Blocks.of(len(stretch.first), dependence(judged_series(stretch.first)).block_rows)
        rows = blocks.batches(streams, STREAM_BATCHES, BATCH, rng).reshape(streams, length)
        found[stretch.name] = stretch.first[rows]
    return {name: losses.astype(np.float32) for name, losses in found.items()}
