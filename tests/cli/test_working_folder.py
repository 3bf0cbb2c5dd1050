import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from edge_agent.cli.working_folder import LOCK, YOUNG_S, working_folder
from edge_agent.errors import StorageError

PREFIX = "drift-replay-"
HOLDS = f"""
import time
from edge_agent.cli.working_folder import working_folder
with working_folder("{PREFIX}") as folder:
    (folder / "samples.db").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_while_it_is_used_and_gone_after(temporary: Path) -> None:
    with working_folder(PREFIX) as folder:
        (folder / "samples.db").write_bytes(b"x")
        assert folder.parent == temporary
        with working_folder(PREFIX) as other:  # of a second replay at the same time
            assert other != folder
        assert (folder / "samples.db").exists()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_and_a_living_one_is_let_be(temporary: Path) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)}
    )
    assert held.stdout is not None
    left = Path(held.stdout.readline().decode().strip())
    with working_folder(PREFIX):
        assert (left / "samples.db").exists()
    held.send_signal(signal.SIGKILL)
    held.wait(20)
    held.stdout.close()
    assert left.exists()
    with working_folder(PREFIX):
        assert not left.exists()


def test_folders_without_a_lock_are_removed_when_they_are_old_and_nothing_else_is(temporary: Path) -> None:
    (temporary / f"{PREFIX}young").mkdir()
    (temporary / f"{PREFIX}old").mkdir()
    (temporary / "of-others").mkdir()
    (temporary / f"{PREFIX}link").symlink_to(temporary / "of-others")
    (temporary / "of-others" / LOCK).touch()
    (temporary / f"{PREFIX}file").touch()
    before_s = time.time() - YOUNG_S - 1
    os.utime(temporary / f"{PREFIX}old", (before_s, before_s))
    with working_folder(PREFIX):
        pass
    assert {path.name for path in temporary.iterdir()} == {
        f"{PREFIX}young",
        f"{PREFIX}link",
        f"{PREFIX}file",
        "of-others",
    }


def test_where_none_can_be_made_it_says_so(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(StorageError, match="no folder for working files can be made"), working_folder(PREFIX):
        pass
