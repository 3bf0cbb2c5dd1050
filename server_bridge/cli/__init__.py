"""``server-bridge``: bundle, init, pki, gateway, run, fleet, log, cohorts, demo, version.

Exit codes:
    0  done; the bridge stopped as asked
    1  an unexpected error (a defect: please report it); demo: something did not hold
    2  wrong use or a wrong setting: a person must act, restarting does not help
    4  storage: the disk or the database cannot be used
    5  a part of the bridge died; start it again (systemd does)
  130  interrupted
"""

from enum import IntEnum

from edge_agent.link.interrupt import quiet_while_loading


class Exit(IntEnum):
    """The documented exit codes."""

    OK = 0
    UNEXPECTED = 1
    CONFIG = 2
    STORAGE = 4
    PART_DIED = 5


def main() -> None:
    """The program's entry point."""
    with quiet_while_loading():
        from server_bridge.cli.commands import main as command_line

    command_line()
