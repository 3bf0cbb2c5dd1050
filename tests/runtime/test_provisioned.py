"""What a gateway was handed to trust: wrong files are named with the way out."""

from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.runtime.provisioned import provisioned_floors, provisioned_root


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 5000, b"x" * 100_000])
def test_damaged_floors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "floors.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"floors\.json.*gateway provision"):
        provisioned_floors(tmp_path / "floors.json")


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"floors\.json.*gateway provision"):
        provisioned_floors(tmp_path / "floors.json")
    with pytest.raises(StorageError, match=r"root\.json.*gateway provision"):
        provisioned_root(tmp_path / "root.json")
