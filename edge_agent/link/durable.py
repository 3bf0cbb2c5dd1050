"""Files that survive a power cut: temporary in the same directory, fsync, rename, fsync directory."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from edge_agent.errors import StorageError

TEMPORARY_SUFFIX = ".tmp"
PRIVATE_MODE = 0o600
_SHARED_MODE = 0o644


class FileOperations:
    """The single steps that reach the disk; a test passes one whose k-th step fails."""

    def create(self, path: Path, mode: int) -> int:
        """Open a file that must not exist yet; returns its descriptor."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)

    def open_part(self, path: Path) -> int:
        """Open a file for writing at offsets, made if absent; returns its descriptor."""
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, _SHARED_MODE)

    def write_at(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset``."""
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def sync(self, descriptor: int) -> None:
        """Bring a file's bytes to the disk."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Put ``source`` in the place of ``target`` in one step."""
        os.replace(source, target)

    def sync_directory(self, path: Path) -> None:
        """Bring a directory's entries to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Remove a file's entry."""
        path.unlink()

    def make_directory(self, path: Path) -> None:
        """Make one directory whose parent exists."""
        path.mkdir(exist_ok=True)


DISK = FileOperations()


def write_file(path: Path, data: bytes, *, mode: int = _SHARED_MODE, files: FileOperations = DISK) -> None:
    """Replace ``path`` by ``data``: afterwards, and after a crash anywhere, it is the old or the new whole.

    Raises:
        StorageError: the disk refused; the old content is untouched.
    """
    temporary = temporary_beside(path)
    with storage_errors("write", path):
        try:
            _write_new(temporary, data, mode, files)
            files.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        files.sync_directory(path.parent)


def put_in_place(made: Path, path: Path, *, files: FileOperations = DISK) -> None:
    """Replace ``path`` by a file that was written elsewhere on its file system, as :func:`write_file` would.

    Raises:
        StorageError: the disk refused, or ``made`` is absent; the old content is untouched.
    """
    with storage_errors("put in place", path):
        made.stat()  # opening would make it
        descriptor = files.open_part(made)
        try:
            files.sync(descriptor)
        finally:
            os.close(descriptor)
        files.rename(made, path)
        files.sync_directory(path.parent)


def write_json(path: Path, value: object, *, mode: int = _SHARED_MODE, files: FileOperations = DISK) -> None:
    """Replace ``path`` by ``value`` as JSON, as :func:`write_file` does."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    write_file(path, text.encode() + b"\n", mode=mode, files=files)


def write_directory(
    path: Path, contents: Mapping[str, bytes], *, private: Collection[str] = (), files: FileOperations = DISK
) -> None:
    """Make the directory ``path`` with all of ``contents``, or nothing of it.

    Args:
        path: must not exist, or be an empty directory.
        contents: file bytes by relative name; a name may hold folders (``train/sgd.onnx``).
        private: names that only the owner may read.

    Raises:
        StorageError: the disk refused, or ``path`` is there and not empty.
    """
    temporary = temporary_beside(path)
    with storage_errors("write directory", path):
        try:
            _fill_directory(temporary, contents, private, files)
            files.rename(temporary, path)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        files.sync_directory(path.parent)


def read_file(path: Path, *, cap_bytes: int | None = None) -> bytes:
    """The bytes of ``path``.

    Raises:
        StorageError: absent, unreadable, or over ``cap_bytes``.
    """
    with storage_errors("read", path):
        if cap_bytes is not None and path.stat().st_size > cap_bytes:
            raise StorageError(f"{path} is over {cap_bytes} bytes")
        return path.read_bytes()


def read_json(path: Path, *, cap_bytes: int = 16 * 1024 * 1024) -> object:
    """The JSON value in ``path``.

    Raises:
        StorageError: absent, unreadable, too large or no JSON.
    """
    data = read_file(path, cap_bytes=cap_bytes)
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is not JSON: {error}") from None
    return value


def make_directory(path: Path, *, files: FileOperations = DISK) -> None:
    """Make ``path`` and its missing parents, each entry synced.

    Raises:
        StorageError: the disk refused, or a file is in the way.
    """
    with storage_errors("make directory", path):
        if path.is_dir():
            return
        if not path.parent.is_dir():
            make_directory(path.parent, files=files)
        files.make_directory(path)
        files.sync_directory(path.parent)


def remove_file(path: Path, *, files: FileOperations = DISK) -> bool:
    """Remove ``path``; returns whether it was there.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors("remove", path):
        try:
            files.unlink(path)
        except FileNotFoundError:
            return False
        files.sync_directory(path.parent)
        return True


def remove_directory(path: Path, *, files: FileOperations = DISK) -> bool:
    """Remove ``path`` and all in it; it goes out of sight in one step. Returns whether it was there.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors("remove directory", path):
        if not path.is_dir():
            return False
        doomed = temporary_beside(path)
        files.rename(path, doomed)
        files.sync_directory(path.parent)
        shutil.rmtree(doomed)
        return True


def sweep_temporaries(directory: Path) -> int:
    """Remove what a crash left half-written in ``directory``; returns how many.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors("sweep", directory):
        leftovers = [entry for entry in directory.iterdir() if _is_temporary(entry)]
        for entry in leftovers:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return len(leftovers)


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same directory that :func:`sweep_temporaries` would remove."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)


def _write_new(path: Path, data: bytes, mode: int, files: FileOperations) -> None:
    descriptor = files.create(path, mode)
    try:
        files.write_at(descriptor, data, 0)
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def _fill_directory(root: Path, contents: Mapping[str, bytes], private: Collection[str], files: FileOperations) -> None:
    files.make_directory(root)
    folders = {root}
    for name, data in contents.items():
        target = root / _inside(name)
        for folder in reversed(target.relative_to(root).parents[:-1]):
            if root / folder not in folders:
                files.make_directory(root / folder)
                folders.add(root / folder)
        _write_new(target, data, PRIVATE_MODE if name in private else _SHARED_MODE, files)
    for folder in sorted(folders, reverse=True):
        files.sync_directory(folder)


def _inside(name: str) -> PurePosixPath:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise OSError(errno.EINVAL, f"{name!r} leaves the directory")
    return relative


@contextmanager
def storage_errors(what: str, path: Path) -> Iterator[None]:
    """Translate what the operating system says about ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {what} {path}: {error.strerror or error}", _hint(error)) from error


def _hint(error: OSError) -> str:
    hints = {
        errno.ENOSPC: "free space on this disk",
        errno.EDQUOT: "free space in this user's quota",
        errno.EACCES: "give the agent's user the right to this path",
        errno.EROFS: "the file system is mounted read-only",
        errno.EEXIST: "a file is in the way: choose another path, or move it away",
        errno.ENOTDIR: "a file stands where a directory is needed: choose another path",
        errno.EISDIR: "a directory stands where a file is needed: choose another path",
    }
    return hints.get(error.errno or 0, "")
