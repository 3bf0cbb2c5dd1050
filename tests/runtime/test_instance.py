import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError, StorageError
from edge_agent.runtime.instance import LOCK_FILE, InstanceLock, is_running

_HOLD = (
    "import sys, pathlib\n"
    "from edge_agent.runtime.instance import InstanceLock\n"
    "lock = InstanceLock(pathlib.Path(sys.argv[1]))\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


def holder(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_one_process_at_a_time_and_a_kill_frees_it(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    with holder(tmp_path) as process:
        assert is_running(tmp_path)
        with pytest.raises(ConfigError, match=r"another edge-agent runs.*data_dir"):
            InstanceLock(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert not is_running(tmp_path)
    InstanceLock(tmp_path).release()


def test_asking_does_not_stand_in_the_way(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path)
    assert is_running(tmp_path)
    lock.release()
    assert not is_running(tmp_path)
    InstanceLock(tmp_path).release()


def test_two_folders_are_two_agents(tmp_path: Path) -> None:
    locks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        locks.append(InstanceLock(tmp_path / name))
    for lock in locks:
        lock.release()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        InstanceLock(tmp_path / "absent")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=LOCK_FILE):
        is_running(tmp_path / "file")
