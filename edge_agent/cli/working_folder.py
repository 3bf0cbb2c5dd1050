"""A folder for one run's working files, which a run that was killed leaves to the next to remove."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_agent.errors import StorageError

LOCK = "lock"
YOUNG_S = 3600.0
"""A folder without a lock that is younger may be about to get one."""


@contextmanager
def working_folder(prefix: str) -> Iterator[Path]:
    """A folder of one's own while it is used; what killed runs left under the prefix is removed first.

    Whether a run lives is told by its lock on a file in its folder, which its end, of whatever kind, gives up.

    Raises:
        StorageError: none can be made.
    """
    try:
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_left(left)
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        lock = _locked(folder)
    except OSError as error:
        problem = f"no folder for working files can be made ({error.strerror})"
        raise StorageError(problem, "free some space, or set TMPDIR") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int:
    """A lock that is held from the moment on at which it can be seen."""
    descriptor = os.open(folder / f".{LOCK}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(folder / f".{LOCK}", folder / LOCK)
    return descriptor


def _remove_left(folder: Path) -> None:
    """Remove a folder of this user's whose run has ended; of others nothing is known."""
    try:
        found = folder.lstat()
    except FileNotFoundError:  # its run has just ended
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        if time.time() - found.st_mtime > YOUNG_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)
