"""``edge-agent``: run, check, status, bundle inspect.

Exit codes:
    0  stopped as asked; the check found nothing wrong; the agent runs
    1  an unexpected error (a defect: please report it)
    2  wrong use, a wrong setting or a wrong file in a new gateway's folder: a person must act, restarting does not help
    3  a check found a problem; status: the agent does not run
    4  storage: the disk or a database cannot be used
    5  a part of the agent died; start it again (systemd does)
  130  interrupted before it served
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge_agent.link.interrupt import quiet_while_loading

# Other packages import these where they are installed, for colours, for signing and for green threads. The
# agent needs none, and must weigh and verify the same whatever else its Python has: 12 MB less (measured).
KEPT_OUT = ("cryptography", "greenlet", "rich")

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""numpy's products would else start a thread a core, which spin for what comes next: the monitors of pictures then took
twice the processor time, from the predictions' core too (measured). They are read when numpy is loaded."""


def main() -> None:
    """The program's entry point."""
    for name in BLAS_THREADS:
        os.environ.setdefault(name, "1")
    for name in KEPT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None is how an import is barred
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # nor is anything checked by what else is installed
    settings = service_settings(sys.argv[1:])
    with quiet_while_loading():
        from edge_agent.cli.allocator import share_one_arena
        from edge_agent.cli.exits import told

        share_one_arena()
        if settings is None:
            from edge_agent.cli.commands import main as command_line
        else:
            from edge_agent.cli.later import load_later

            load_later()
            from edge_agent.cli.serving import serve
    if settings is None:
        command_line()
    else:
        told(lambda: sys.exit(serve(settings)))


def service_settings(arguments: Sequence[str]) -> Path | None:
    """The settings file of ``run -c FILE``, as services write it.

    They start without what reads all other words: a tenth of the start, and memory that is never used again (measured).
    """
    match arguments:
        case ["run", "-c" | "--config", file] if not file.startswith("-"):
            return Path(file)
    return None
