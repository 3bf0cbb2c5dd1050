"""What a gateway was handed to trust: wrong files are named with the way out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.runtime.provisioned import WronglyProvisioned, is_root_usable, provisioned_floors, provisioned_root
from server_bridge.releases.keys import FleetKeys
from server_bridge.releases.repository import build_root


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 5000, b"x" * 100_000])
def test_damaged_floors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "floors.json").write_bytes(content)
    with pytest.raises(WronglyProvisioned, match=r"floors\.json.*gateway provision"):
        provisioned_floors(tmp_path / "floors.json")


@pytest.fixture(scope="module")
def root() -> bytes:
    keys = FleetKeys.generate()
    (root,) = build_root(keys, 1, 1.8e9).values()
    return root


def test_a_root_signed_by_its_own_keys_is_taken(tmp_path: Path, root: bytes) -> None:
    (tmp_path / "root.json").write_bytes(root)
    assert provisioned_root(tmp_path / "root.json") == root
    assert is_root_usable(tmp_path / "root.json")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: b"",
        lambda root: bytes(len(root)),
        lambda root: root[: len(root) // 2],
        lambda root: b"{}",
        lambda root: b"[" * 100_000,
        lambda root: root.replace(b'"version":1', b'"version":2').replace(b'"version": 1', b'"version": 2'),
        lambda root: root.replace(b'"_type":"root"', b'"_type":"targets"'),
    ],
    ids=["empty", "zero", "cut", "no metadata", "deep", "one value changed", "another role"],
)
def test_a_root_that_no_release_could_be_verified_with(
    tmp_path: Path, root: bytes, spoil: Callable[[bytes], bytes]
) -> None:
    assert spoil(root) != root
    (tmp_path / "root.json").write_bytes(spoil(root))
    with pytest.raises(WronglyProvisioned, match=r"root\.json.*gateway provision"):
        provisioned_root(tmp_path / "root.json")
    assert not is_root_usable(tmp_path / "root.json")


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(WronglyProvisioned, match=r"floors\.json.*gateway provision"):
        provisioned_floors(tmp_path / "floors.json")
    with pytest.raises(WronglyProvisioned, match=r"root\.json.*gateway provision"):
        provisioned_root(tmp_path / "root.json")
