from pathlib import Path

import pytest

from server_bridge.errors import StoreDamaged
from server_bridge.store.copier import RETRY_S, SETTLE_S, START_PAUSE_S, StoreCopier
from server_bridge.store.recovery import copies_of
from tests.store.stores import fill, garbage

INTERVAL_S = 900.0


class Scene:
    """A copier whose clock moves when told."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "store.db"
        if not self.file.exists():
            fill(folder)
        self.copies = copies_of(self.file)
        self.now_s = 100.0
        self.wall_s = 0.0
        self.release = 1
        self.copied = 0
        self.copier = StoreCopier(
            self.copies,
            INTERVAL_S,
            occasion=lambda: self.release,
            on_copied=self._count,
            pause=lambda wait_s: None,
            monotonic=lambda: self.now_s,
            wall=lambda: self.wall_s or self.newest_s,
        )

    @property
    def newest_s(self) -> float:
        return max((copy.made_s for copy in self.copies.all()), default=0.0)

    def _count(self) -> None:
        self.copied += 1

    def after(self, seconds: float) -> int:
        self.now_s += seconds
        self.copier.step()
        return self.copied


def test_at_the_first_start_then_every_interval(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.after(0.0) == 1
    assert scene.after(INTERVAL_S - 1) == 1
    assert scene.after(1.0) == 2


def test_soon_after_what_must_not_be_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.after(0.0)
    scene.release = 2
    assert scene.after(5.0) == 1, "the end of the adaptation is recorded after its release"
    assert scene.after(SETTLE_S) == 2
    assert scene.after(INTERVAL_S - 1) == 2


def test_a_bridge_that_is_started_again_and_again_does_not_copy_each_time(tmp_path: Path) -> None:
    Scene(tmp_path).after(0.0)
    again = Scene(tmp_path)
    assert again.after(0.0) == 0
    assert again.after(START_PAUSE_S) == 1


def test_a_disk_without_room_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("server_bridge.store.copies.SPARE_BYTES", 10**18)
        assert scene.after(0.0) == 0
    assert scene.after(RETRY_S - 1) == 0
    assert scene.after(1.0) == 1


def test_damage_is_not_swallowed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    garbage(scene.file)
    with pytest.raises(StoreDamaged):
        scene.after(0.0)
