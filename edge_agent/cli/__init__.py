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

import sys

from edge_agent.link.interrupt import quiet_while_loading

# Other packages import these where they are installed, for colours, for signing and for green threads. The
# agent needs none, and must weigh and verify the same whatever else its Python has: 12 MB less (measured).
KEPT_OUT = ("cryptography", "greenlet", "rich")


def main() -> None:
    """The program's entry point."""
    for name in KEPT_OUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None is how an import is barred
    with quiet_while_loading():
        from edge_agent.cli.allocator import share_one_arena

        share_one_arena()
        from edge_agent.cli.commands import main as command_line

    command_line()
