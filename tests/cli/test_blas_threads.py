"""numpy's products on one thread, in a process of its own."""

import os
import subprocess
import sys

from edge_agent.cli import BLAS_THREADS

_PRODUCT = """
import os, sys
from edge_agent import cli
sys.argv = ["edge-agent", "--help"]
try:
    cli.main()
except SystemExit:
    pass
import numpy as np
many = np.ones((800, 800))
many @ many
print(os.environ["OPENBLAS_NUM_THREADS"], len(os.listdir("/proc/self/task")))
"""


def started(said: dict[str, str]) -> list[str]:
    """The setting that numpy found, and how many threads there are after a large product."""
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS} | said
    done = subprocess.run(
        [sys.executable, "-c", _PRODUCT], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    return done.stdout.splitlines()[-1].split()


def test_the_agents_products_take_one_thread() -> None:
    assert started({}) == ["1", "1"]


def test_who_says_how_many_is_heard() -> None:
    assert started({"OPENBLAS_NUM_THREADS": "3"})[0] == "3"
