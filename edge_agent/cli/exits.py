"""The documented exit codes, and errors told in two lines."""

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from edge_agent.errors import ConfigError, DataError, EdgeError, StorageError
from edge_agent.link.interrupt import INTERRUPTED


class Exit(IntEnum):
    """The documented exit codes."""

    OK = 0
    UNEXPECTED = 1
    CONFIG = 2
    PROBLEM = 3
    STORAGE = 4
    PART_DIED = 5


def told(work: Callable[[], object]) -> None:
    """Run a command; errors that a person can mend are one line and what to do, not a traceback.

    Raises:
        SystemExit: with the error's exit code.
    """
    try:
        work()
    except (ConfigError, DataError) as error:
        _end(error, Exit.CONFIG)
    except StorageError as error:
        _end(error, Exit.STORAGE)
    except EdgeError as error:
        _end(error, Exit.UNEXPECTED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end(error: EdgeError, code: Exit) -> None:
    with suppress(OSError):  # nobody reads it
        sys.stderr.write(f"edge-agent: {error.problem}\n" + (f"  {error.hint}\n" if error.hint else ""))
        sys.stderr.flush()
    sys.exit(code)
