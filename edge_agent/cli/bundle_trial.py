"""A trial in a process of its own, whose memory is nobody else's.

``python -m edge_agent.cli.bundle_trial DIRECTORY [GRAPH]`` tries a training graph, or inference, and prints JSON.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from edge_agent.errors import DataError, EdgeError
from edge_agent.model.bundle import load_bundle
from edge_agent.model.trial import Trial, resident_bytes, try_inference, try_training

BATCHES = (1, 32)
TRIAL_S = 600


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial found.

    Attributes:
        trials: one a batch size.
        start_bytes: resident memory before the bundle was read: Python, numpy and onnxruntime.
        problem: why there are no trials; empty: they went well.
    """

    trials: tuple[Trial, ...]
    start_bytes: int
    problem: str = ""


def tried(directory: Path, graph: str = "") -> Tried:
    """Try a training graph, or inference where none is named, in a new process.

    Raises:
        DataError: the process does not answer in ten minutes, or ends without one.
    """
    command = [sys.executable, "-m", "edge_agent.cli.bundle_trial", str(directory), graph]
    what = f"training graph {graph!r}" if graph else "inference"
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise DataError(f"{what} takes more than {TRIAL_S} s for a few runs on this machine") from None
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        raise DataError(f"{what} ended its process ({ended.returncode}): {last}", "the memory may not suffice")
    said = json.loads(ended.stdout)
    return Tried(tuple(Trial(**trial) for trial in said["trials"]), said["start_bytes"], said["problem"])


def main(directory: str, graph: str) -> None:
    """Try, and print what was found."""
    start = resident_bytes("VmRSS")
    try:
        bundle = load_bundle(Path(directory))
        trials = try_training(bundle, graph, BATCHES) if graph else try_inference(bundle, BATCHES)
        found = Tried(tuple(trials), start)
    except EdgeError as error:
        found = Tried((), start, str(error))
    except MemoryError as error:
        found = Tried((), start, f"the memory does not suffice: {error}")
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
