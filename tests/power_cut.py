"""A power cut at the k-th durable step: of the file operations and of the databases' commits."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edge_agent.link.database import Database
from edge_agent.link.durable import FileOperations

_STEPS = ("create", "open_part", "write_at", "sync", "rename", "sync_directory", "unlink", "make_directory")


class PowerCut(BaseException):
    """The machine stops: no handler of the program runs to any effect."""


class Power:
    """Fails before the k-th durable step, and at every one after it; ``k`` 0 never fails.

    Attributes:
        steps: so far.
        trace: their names.
    """

    def __init__(self, k: int) -> None:
        self.steps = 0
        self.trace: list[str] = []
        self._k = k
        self._synced: dict[int, bytes] = {}

    @property
    def is_out(self) -> bool:
        """Whether the power has failed."""
        return bool(self._k) and self.steps >= self._k

    def step(self, name: str) -> None:
        """Count one step, or fail at it."""
        self.steps += 1
        self.trace.append(name)
        if self.is_out:
            raise PowerCut

    @contextmanager
    def installed(self) -> Iterator["Power"]:
        """Every agent part in this process draws on it."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _STEPS:
                patch.setattr(FileOperations, name, self._fused(name, getattr(FileOperations, name)))
            patch.setattr(Database, "_run", self._fused_run(Database._run))
            yield self

    def lose_unsynced(self, root: Path) -> None:
        """What a power cut may do: bytes never synced come back as nothing."""
        for entry in root.rglob("*"):
            if entry.is_file() and entry.stat().st_ino in self._synced:
                entry.write_bytes(self._synced[entry.stat().st_ino])

    def _fused(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(files: FileOperations, *arguments: Any) -> Any:
            if name == "write_at":
                self._half_written(*arguments)
            if name == "unlink" and not arguments[0].exists():
                return original(files, *arguments)
            self.step(name)
            result = original(files, *arguments)
            if name in ("create", "open_part"):
                self._synced.setdefault(os.fstat(result).st_ino, _content(result) if name == "open_part" else b"")
            if name == "sync":
                self._synced[os.fstat(arguments[0]).st_ino] = _content(arguments[0])
            return result

        return operation

    def _half_written(self, descriptor: int, data: bytes, offset: int) -> None:
        self._synced.setdefault(os.fstat(descriptor).st_ino, _content(descriptor))
        os.pwrite(descriptor, data[: len(data) // 2], offset)

    def _fused_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(database: Database, sql: str, parameters: Any = ()) -> Any:
            if sql == "COMMIT":
                self.step("commit")
            return original(database, sql, parameters)

        return run


def at_every_step(act: Callable[[Path, int], Power], folder: Path, *, steps_max: int = 500) -> int:
    """Call ``act`` with a fresh folder for k = 1, 2 ... until the power no longer fails; the number of steps.

    ``act`` works under ``Power(k)``, then restarts and judges; it returns the power used.
    """
    for k in range(1, steps_max):
        power = act(folder / f"cut-{k}", k)
        if not power.is_out:
            return power.steps
    raise AssertionError(f"more than {steps_max} steps")


@contextmanager
def until_the_cut(k: int, root: Path) -> Iterator[Power]:
    """Run the body under ``Power(k)``; at the cut what was not synced is lost."""
    power = Power(k)
    with power.installed(), suppress(PowerCut):
        yield power
    if power.is_out:
        power.lose_unsynced(root)


def _content(descriptor: int) -> bytes:
    return Path(f"/proc/self/fd/{descriptor}").read_bytes()
