"""Files of features on a disk that refuses."""

import errno
import os
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.durable import FileOperations
from edge_agent.samples.segments import Segments


class FullDisk(FileOperations):
    """Takes so many bytes and no more."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes

    def write_at(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        taken = memoryview(data)[: self.room_bytes]
        self.room_bytes -= len(taken)
        super().write_at(descriptor, taken, offset)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_a_full_disk_took_of_some_features_is_given_back(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "samples.db", files=FullDisk(10))
    segments.prepare()
    assert segments.append(1, [b"abc", b"de"]) == 0
    with pytest.raises(StorageError, match="No space left"):
        segments.append(1, [b"fgh", b"ijklm"])
    assert (tmp_path / "samples.features" / "1.rows").read_bytes() == b"abcde"
