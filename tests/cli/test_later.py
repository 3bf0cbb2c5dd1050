import subprocess
import sys

import pytest

HEAVY = "asyncio.base_events email.message importlib.metadata._meta"
START = f"""
import os, sys
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
from edge_agent.cli.later import load_later
load_later()
import edge_agent.config, edge_agent.link.log_lines
loaded = [name for name in {HEAVY!r}.split() if name in sys.modules]
assert not loaded, loaded
"""


@pytest.mark.parametrize(
    "use",
    [
        "import asyncio; assert asyncio.run(asyncio.sleep(0.0, 'slept')) == 'slept'",
        "import asyncio.events; assert asyncio.events.new_event_loop().close() is None",
        "from asyncio import queues; assert queues.Queue().empty()",
        "import importlib.metadata as found; assert found.version('numpy')",
        "from importlib.metadata import entry_points; assert entry_points(group='console_scripts')",
        "from importlib.metadata import PackageNotFoundError as absent; assert issubclass(absent, ImportError)",
        "import importlib.metadata._meta as part; assert part.PackageMetadata",
        "import structlog; assert structlog.stdlib.asyncio.TimeoutError is TimeoutError",
    ],
)
def test_what_is_put_off_is_there_once_it_is_used(use: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + use], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_several_threads_may_be_the_first_to_use_it() -> None:
    use = """
from concurrent.futures import ThreadPoolExecutor
import asyncio, importlib.metadata
with ThreadPoolExecutor(8) as pool:
    waits = [pool.submit(lambda: (asyncio.TimeoutError, importlib.metadata.version("numpy"))) for _ in range(64)]
    assert len({wait.result() for wait in waits}) == 1
"""
    done = subprocess.run([sys.executable, "-c", START + use], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
