"""One bridge a folder."""

import fcntl
import os
import time
from pathlib import Path

from edge_agent.errors import ConfigError, StorageError
from edge_agent.link.durable import make_directory, storage_errors

LOCK_FILE = "bridge.lock"
LOOKS, LOOK_S = 5, 0.05


def lock_folder(directory: Path) -> int:
    """Make sure that no other bridge runs on this folder; the lock's descriptor.

    Raises:
        ConfigError: another one does.
        StorageError: the disk refuses.
    """
    make_directory(directory)
    with storage_errors("open", directory / LOCK_FILE):
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(LOOKS):  # a command that asks whether a bridge runs holds it for a moment
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            time.sleep(LOOK_S)
    os.close(descriptor)
    raise ConfigError(f"another bridge runs in {directory}", "stop it first; a fleet has one bridge")


def is_locked(directory: Path) -> bool:
    """Whether a bridge runs on this folder now.

    Raises:
        StorageError: the disk refuses.
    """
    try:
        with storage_errors("open", directory / LOCK_FILE):
            descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except StorageError:
        if (directory / LOCK_FILE).exists():
            raise
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
