import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link import durable


class PowerCut(BaseException):
    """The machine stops: no handler of the program runs to any effect."""


class FailingDisk(durable.FileOperations):
    """The k-th step fails; ``fault`` says how. At a power cut a file goes back to what was last synced of it.

    Nothing is really synced, for speed: what counts is remembered.
    """

    def __init__(self, fails_at: int, fault: type[BaseException]) -> None:
        self.steps = 0
        self._fails_at = fails_at
        self._fault = fault
        self._synced: dict[int, bytes] = {}

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._fails_at:
            raise self._fault(28, "No space left on device")

    def create(self, path: Path, mode: int) -> int:
        self._step()
        descriptor = super().create(path, mode)
        self._synced[os.fstat(descriptor).st_ino] = b""
        return descriptor

    def open_part(self, path: Path) -> int:
        self._step()
        fresh = not path.exists()
        descriptor = super().open_part(path)
        if fresh:
            self._synced[os.fstat(descriptor).st_ino] = b""
        return descriptor

    def write_at(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        self._synced.setdefault(os.fstat(descriptor).st_ino, Path(f"/proc/self/fd/{descriptor}").read_bytes())
        super().write_at(descriptor, data[: len(data) // 2], offset)
        self._step()
        super().write_at(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        self._step()
        self._synced[os.fstat(descriptor).st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._step()

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def unsynced(self, path: Path) -> None:
        """Somebody else wrote this file, and has not synced it."""
        self._synced[path.stat().st_ino] = b""

    def lose_unsynced(self, root: Path) -> None:
        """What a power cut may do: bytes never synced come back as nothing."""
        for entry in root.rglob("*"):
            if entry.is_file() and entry.stat().st_ino in self._synced:
                entry.write_bytes(self._synced[entry.stat().st_ino])


def _count(action: Callable[[durable.FileOperations], object]) -> int:
    disk = FailingDisk(-1, OSError)
    action(disk)
    return disk.steps


@pytest.mark.parametrize("fault", [OSError, PowerCut])
def test_a_file_is_old_or_new_whichever_step_fails(tmp_path: Path, fault: type[BaseException]) -> None:
    steps = _count(lambda disk: durable.write_file(tmp_path / "count", b"x", files=disk))
    assert steps == 5
    for step in range(1, steps + 1):
        path = tmp_path / f"{fault.__name__}-{step}"
        durable.write_file(path, b"old content")
        disk = FailingDisk(step, fault)
        with pytest.raises(StorageError if fault is OSError else PowerCut):
            durable.write_file(path, b"new content, longer", files=disk)
        disk.lose_unsynced(tmp_path)
        assert durable.read_file(path) in (b"old content", b"new content, longer")
        leftovers = durable.sweep_temporaries(tmp_path)
        assert leftovers == 0 or fault is PowerCut
    assert [entry for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")] == []


def test_a_file_put_in_place_is_synced_before_it_replaces_the_old_one(tmp_path: Path) -> None:
    for step in range(1, 5):
        path, made = tmp_path / f"kept-{step}", tmp_path / f"made-{step}"
        path.write_bytes(b"old content")
        made.write_bytes(b"new content, longer")
        disk = FailingDisk(step, PowerCut)
        disk.unsynced(made)
        with pytest.raises(PowerCut):
            durable.put_in_place(made, path, files=disk)
        disk.lose_unsynced(tmp_path)
        assert path.read_bytes() == (b"old content" if step < 4 else b"new content, longer")


def test_what_is_absent_is_not_put_in_place(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old content")
    with pytest.raises(StorageError, match=r"cannot put in place .*kept"):
        durable.put_in_place(tmp_path / "absent", path)
    assert path.read_bytes() == b"old content"


@pytest.mark.parametrize("fault", [OSError, PowerCut])
def test_a_directory_is_whole_or_absent_whichever_step_fails(tmp_path: Path, fault: type[BaseException]) -> None:
    contents = {"manifest.json": b"{}", "train/sgd.onnx": b"graph", "train/adam.onnx": b"graph 2"}
    steps = _count(lambda disk: durable.write_directory(tmp_path / "count", contents, files=disk))
    for step in range(1, steps + 1):
        path = tmp_path / f"{fault.__name__}-{step}"
        disk = FailingDisk(step, fault)
        with pytest.raises(StorageError if fault is OSError else PowerCut):
            durable.write_directory(path, contents, files=disk)
        disk.lose_unsynced(tmp_path)
        if path.exists():
            assert {name: (path / name).read_bytes() for name in contents} == contents
        durable.sweep_temporaries(tmp_path)
    assert [entry for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")] == []


def test_errors_name_the_path_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"pointer\.json.*free space on this disk"):
        durable.write_file(tmp_path / "pointer.json", b"x", files=FailingDisk(2, OSError))


def test_a_file_in_a_directorys_place_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(StorageError, match=r"taken: File exists.*choose another path"):
        durable.make_directory(tmp_path / "taken")
    with pytest.raises(StorageError, match="choose another path"):
        durable.make_directory(tmp_path / "taken" / "below")


def test_a_directory_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    durable.write_directory(tmp_path / "bundle", {"a": b"1"})
    with pytest.raises(StorageError):
        durable.write_directory(tmp_path / "bundle", {"a": b"2"})
    assert (tmp_path / "bundle" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", ""])
def test_a_directory_member_cannot_leave_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(StorageError):
        durable.write_directory(tmp_path / "in" / "bundle", {name: b"x"})
    assert list(tmp_path.rglob("evil")) == []


def test_json_round_trip_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    durable.write_json(path, {"a": [1, 2.5, None, "ü"]})
    assert durable.read_json(path) == {"a": [1, 2.5, None, "ü"]}
    durable.write_file(path, b"\0" * 100)
    with pytest.raises(StorageError, match="not JSON"):
        durable.read_json(path)
    with pytest.raises(StorageError, match="over 10 bytes"):
        durable.read_json(path, cap_bytes=10)
    with pytest.raises(StorageError, match=r"absent\.json"):
        durable.read_json(tmp_path / "absent.json")


def test_a_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    durable.write_file(tmp_path / "key", b"secret", mode=durable.PRIVATE_MODE)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_make_and_remove(tmp_path: Path) -> None:
    durable.make_directory(tmp_path / "a" / "b" / "c")
    durable.make_directory(tmp_path / "a" / "b" / "c")
    durable.write_file(tmp_path / "a" / "b" / "file", b"x")
    assert durable.remove_file(tmp_path / "a" / "b" / "file")
    assert not durable.remove_file(tmp_path / "a" / "b" / "file")
    assert durable.remove_directory(tmp_path / "a")
    assert not durable.remove_directory(tmp_path / "a")
    durable.write_file(tmp_path / "file", b"x")
    with pytest.raises(StorageError):
        durable.make_directory(tmp_path / "file" / "below")
