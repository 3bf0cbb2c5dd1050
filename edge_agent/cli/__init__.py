"""``edge-agent``: run, check, status.

Exit codes:
    0  stopped as asked; the check found nothing wrong; the agent runs
    1  an unexpected error (a defect: please report it)
    2  wrong use or a wrong setting: a person must act, restarting does not help
    3  a check found a problem; status: the agent does not run
    4  storage: the disk or a database cannot be used
    5  a part of the agent died; start it again (systemd does)
"""

from edge_agent.cli.main import main

__all__ = ["main"]
