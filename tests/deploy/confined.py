"""Runs a command under a unit's own limits and system call filter, where systemd itself does not run.

``python -m tests.deploy.confined UNIT COMMAND...``; what is put on is ``SystemCallFilter``,
``RestrictAddressFamilies``, ``MemoryDenyWriteExecute``, ``RestrictNamespaces``, ``NoNewPrivileges``, ``LimitNOFILE``,
``LimitCORE`` and ``UMask``, by libseccomp as systemd does it.
"""

import ctypes
import ctypes.util
import errno
import mmap
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ALLOW = 0x7FFF_0000
ERRNO = 0x0005_0000
_EQUAL, _MASKED_EQUAL = 4, 7
_SHM_EXEC = 0o100000
_NAMESPACES = (0x2_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000)
_PR_SET_NO_NEW_PRIVS = 38


class _Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Filter:
    """One system call filter; several are put on top of each other, the strictest answer holds."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL(ctypes.util.find_library("seccomp"))
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action: int, name: str, *comparisons: tuple[int, int, int, int]) -> None:
        """Answer a call of this name with the action; a call that this machine does not have is passed over."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return
        array = (_Comparison * max(1, len(comparisons)))(*(_Comparison(*one) for one in comparisons))
        done = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), ctypes.c_int(number), ctypes.c_uint(len(comparisons)), array
        )
        if done != 0:
            raise OSError(-done, f"{name}: {os.strerror(-done)}")

    def load(self) -> None:
        """From here on it holds, for every child too."""
        done = self._library.seccomp_load(self._context)
        if done != 0:
            raise OSError(-done, os.strerror(-done))


def unit_settings(unit: Path) -> dict[str, list[str]]:
    """Every key of a unit file with its values, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith(("#", "[")):
            found.setdefault(key, []).append(value)
    return found


def allowed_calls(filters: Iterable[str]) -> set[str]:
    """Names of the calls that ``SystemCallFilter`` lines allow, the first one being an allow list."""
    allowed = set[str]()
    for line in filters:
        calls = {call for word in line.removeprefix("~").split() for call in _expanded(word)}
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed | _expanded("@default")


def _expanded(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", word], capture_output=True, text=True, check=True
    )
    words = [line.strip() for line in done.stdout.splitlines()[1:]]
    return {call for word in words if word and not word.startswith("#") for call in _expanded(word)}


def confine(settings: dict[str, list[str]]) -> None:
    """Put the unit's limits on this process."""
    (no_new,), (files,), (umask,) = (settings[key] for key in ("NoNewPrivileges", "LimitNOFILE", "UMask"))
    assert no_new == "yes"
    os.umask(int(umask, 8))
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    calls = allowed_calls(settings["SystemCallFilter"])
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    for each in (_fine(settings), _coarse(calls, settings["RestrictAddressFamilies"])):
        each.load()


def _coarse(calls: set[str], families: Sequence[str]) -> Filter:
    made = Filter(ERRNO | errno.EPERM)
    for call in sorted(calls - {"socket"}):
        made.rule(ALLOW, call)
    for family in families[0].split():
        made.rule(ALLOW, "socket", (0, _EQUAL, getattr(socket, family), 0))
    return made


def _fine(settings: dict[str, list[str]]) -> Filter:
    made = Filter(ALLOW)
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        both = mmap.PROT_WRITE | mmap.PROT_EXEC
        made.rule(ERRNO | errno.EPERM, "mmap", (2, _MASKED_EQUAL, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            made.rule(ERRNO | errno.EPERM, call, (2, _MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
        made.rule(ERRNO | errno.EPERM, "shmat", (2, _MASKED_EQUAL, _SHM_EXEC, _SHM_EXEC))
    if settings["RestrictNamespaces"] == ["yes"]:
        for call in ("unshare", "setns"):
            made.rule(ERRNO | errno.EPERM, call)
        for flag in _NAMESPACES:
            made.rule(ERRNO | errno.EPERM, "clone", (0, _MASKED_EQUAL, flag, flag))
        made.rule(ERRNO | errno.ENOSYS, "clone3")
    return made


if __name__ == "__main__":
    confine(unit_settings(Path(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
