"""One agent a data folder: a lock that the kernel releases, however the process ends."""

import fcntl
import os
from pathlib import Path

from edge_agent.errors import ConfigError, StorageError

LOCK_FILE = "agent.lock"
STATUS_FILE = "status.json"


class InstanceLock:
    """Held while an agent runs on a data folder.

    Raises:
        ConfigError: another agent holds it.
        StorageError: the folder cannot be written.
    """

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / LOCK_FILE
        try:
            self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error.strerror}", "check owner and free space") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise ConfigError(
                f"another edge-agent runs on {data_dir}", "stop it first, or give this one its own [gateway] data_dir"
            ) from None

    def release(self) -> None:
        """Let another agent start."""
        os.close(self._descriptor)


def is_running(data_dir: Path) -> bool:
    """Whether an agent holds the folder's lock.

    Raises:
        StorageError: the lock file cannot be read.
    """
    path = data_dir / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror}", "ask as the agent's own user") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
