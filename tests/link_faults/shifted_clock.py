"""An agent under a wrong clock: ``python -m tests.link_faults.shifted_clock FILE ARGUMENTS...``.

``FILE`` holds the seconds to add to the real time; it is looked at with every reading, so that the clock
jumps when the file changes. Only the wall clock is wrong: what is measured with the monotonic one is not.
"""

import sys
import time
from contextlib import suppress
from pathlib import Path

_real_time = time.time


def shift(file: Path) -> None:
    """Make ``time.time`` wrong by what the file says; before anything of the agent is imported."""
    known: list[float] = [0.0]

    def shifted() -> float:
        with suppress(OSError, ValueError):  # it is being written: as before
            known[0] = float(file.read_text())
        return _real_time() + known[0]

    time.time = shifted


def main() -> None:
    """Run the agent's own command line."""
    shift(Path(sys.argv[1]))
    from edge_agent.cli import main as agent

    sys.argv = ["edge-agent", *sys.argv[2:]]
    agent()


if __name__ == "__main__":
    main()
