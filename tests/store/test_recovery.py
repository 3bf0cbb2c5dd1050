import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from server_bridge.errors import StoreDamaged
from server_bridge.store.copies import COPIES_KEPT, StoreCopies
from server_bridge.store.recovery import (
    DAMAGED_KEPT,
    LogLost,
    Restored,
    copies_of,
    database_file,
    recover,
    require_present,
    suspect,
)
from server_bridge.store.soundness import check_file, content_check, quick_check
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.store.stores import GATEWAYS, STRUCTURAL, a_word_changed, deleted, fill, garbage, opened, zeroed

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    return fill(folder)


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "store.db"))


@pytest.fixture
def copies(store: Path) -> StoreCopies:
    made = copies_of(store)
    made.take()
    return made


def is_whole(store: Path) -> bool:
    check_file(store, quick_check, content_check)
    again = opened(store.parent)
    try:
        return len(again.gateways.registered()) == GATEWAYS and len(again.flags.open()) == 60
    finally:
        again.close()


def test_a_sound_store_is_left_as_it_is(store: Path, copies: StoreCopies) -> None:
    before = store.read_bytes()
    assert recover(store, copies) is None
    assert store.read_bytes() == before


@pytest.mark.parametrize("damage", STRUCTURAL)
def test_a_damaged_store_is_set_aside_and_restored_from_the_copy(
    store: Path, copies: StoreCopies, damage: Damage
) -> None:
    damage(store)
    kept = store.read_bytes() if store.exists() else None
    restored = recover(store, copies)
    assert isinstance(restored, Restored)
    assert str(store) in restored.describe(0.0)
    assert is_whole(store)
    aside = store.with_name("store.db.damaged-1")
    assert (aside.read_bytes() if aside.exists() else None) == kept
    assert restored.set_aside == (None if kept is None else aside.name)


def test_a_row_that_cannot_be_read_is_found_at_the_start_after_it_was_met(store: Path, copies: StoreCopies) -> None:
    a_word_changed(store)
    assert recover(store, copies) is None, "SQLite finds nothing"
    met = opened(store.parent)
    with pytest.raises(StoreDamaged, match=r"store.db is damaged: a row of flags") as caught:
        met.flags.all()
    met.close()
    suspect(store, caught.value.problem)
    assert recover(store, copies) is not None
    assert is_whole(store)


def test_a_suspicion_that_proves_false_costs_nothing(store: Path, copies: StoreCopies) -> None:
    suspect(store, "a reader saw something")
    assert recover(store, copies) is None
    assert not store.with_name("store.db.suspect").exists()


def test_a_log_that_a_lost_store_left_is_not_taken_for_the_restored_ones(store: Path, copies: StoreCopies) -> None:
    late = opened(store.parent)
    late.gateways.register("late", 1000, 1.0)
    log = store.with_name("store.db-wal").read_bytes()
    late.close()
    deleted(store)
    store.with_name("store.db-wal").write_bytes(log)
    assert recover(store, copies) is not None
    assert is_whole(store)


@pytest.mark.parametrize("log", [bytes(40_000), b"\x37\x7f", b"garbage" * 1000])
def test_a_damaged_log_beside_a_sound_store_is_named_and_set_aside(
    store: Path, copies: StoreCopies, log: bytes
) -> None:
    file = store.with_name("store.db-wal")
    file.write_bytes(log)
    lost = recover(store, copies)
    assert isinstance(lost, LogLost)
    assert "store.db-wal is damaged" in lost.describe(0.0)
    assert store.with_name("store.db.damaged-wal").read_bytes() == log
    assert not file.exists()
    assert is_whole(store)


def test_the_log_of_a_bridge_that_was_killed_is_read(store: Path, copies: StoreCopies) -> None:
    killed = opened(store.parent)
    killed.gateways.register("late", 1000, 1.0)
    folder = store.parent / "as it was"
    folder.mkdir()
    for file in store.parent.glob("store.db*"):
        shutil.copy(file, folder)
    killed.close()
    assert recover(folder / "store.db", copies) is None
    again = opened(folder)
    assert "late" in {row.id for row in again.gateways.registered()}
    again.close()


def test_a_damaged_copy_is_passed_over(store: Path, copies: StoreCopies) -> None:
    newest = copies.take()
    zeroed(newest.path)
    garbage(store)
    restored = recover(store, copies)
    assert isinstance(restored, Restored)
    assert restored.copy.number == newest.number - 1
    assert is_whole(store)


def test_without_a_sound_copy_the_start_is_refused_with_the_way_out_and_nothing_is_destroyed(store: Path) -> None:
    garbage(store)
    before = store.read_bytes()
    with pytest.raises(StoreDamaged, match=r"store.db is damaged.*no copy.*backup.*move it away"):
        recover(store, copies_of(store))
    assert store.read_bytes() == before


def test_with_damaged_copies_only_every_start_is_refused(store: Path, copies: StoreCopies) -> None:
    garbage(store)
    before = store.read_bytes()
    for copy in copies.all():
        zeroed(copy.path)
    for _ in range(3):
        with pytest.raises(StoreDamaged, match=r"no copy in .*store-copies is sound"):
            recover(store, copies)
    assert store.read_bytes() == before


def test_a_fleet_that_has_just_been_founded_has_no_store_and_no_copy(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    assert recover(store, copies_of(store)) is None
    require_present(store, copies_of(store))


def test_a_command_beside_the_bridge_makes_no_new_store_where_one_was_lost(store: Path, copies: StoreCopies) -> None:
    deleted(store)
    with pytest.raises(StorageError, match=r"store.db is gone.*start the bridge"):
        require_present(store, copies)
    assert not store.exists()


def test_a_command_beside_the_bridge_writes_nothing_into_a_store_that_was_emptied(
    store: Path, copies: StoreCopies
) -> None:
    store.write_bytes(b"")
    with pytest.raises(StorageError, match=r"store.db.*start the bridge"):
        require_present(store, copies)
    assert store.read_bytes() == b""
    assert isinstance(recover(store, copies), Restored)


def test_a_copy_that_cannot_be_read_is_passed_over(
    store: Path, copies: StoreCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = copies.take()
    copy_file = shutil.copyfile

    def bad_sector(source: Path, target: Path) -> Path:
        if source == newest.path:
            raise OSError(errno.EIO, "Input/output error")
        return copy_file(source, target)

    monkeypatch.setattr(shutil, "copyfile", bad_sector)
    garbage(store)
    restored = recover(store, copies)
    assert isinstance(restored, Restored)
    assert restored.copy.number == newest.number - 1
    assert is_whole(store)


def test_what_is_no_file_is_no_copy(store: Path, copies: StoreCopies) -> None:
    (copies.folder / "99.db").mkdir()
    garbage(store)
    assert isinstance(recover(store, copies), Restored)


def test_neither_copies_nor_what_is_set_aside_grow_without_bound(store: Path, copies: StoreCopies) -> None:
    for _ in range(4):
        copies.take()
        garbage(store)
        store.with_name("store.db-wal").write_bytes(b"x" * 100)
        assert recover(store, copies) is not None
    assert len(copies.all()) == COPIES_KEPT
    assert len(list(store.parent.glob("store.db.damaged-?"))) == DAMAGED_KEPT
    assert len(list(store.parent.iterdir())) < 10
    assert {path.name for path in copies.folder.iterdir()} == {copy.path.name for copy in copies.all()}


def test_a_copy_of_a_damaged_store_shows_the_damage_and_replaces_no_sound_one(store: Path, copies: StoreCopies) -> None:
    sound = copies.all()
    data = bytearray(store.read_bytes())
    data[4096 * 4 : 4096 * 9] = bytes(4096 * 5)
    store.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"store.db is damaged"):
        copies.take()
    assert copies.all() == sound


def test_a_disk_with_little_room_is_left_to_the_store(
    store: Path, copies: StoreCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copies.all()
    monkeypatch.setattr("server_bridge.store.copies.SPARE_BYTES", 10**18)
    with pytest.raises(StorageError, match=r"no copy of .*store.db is made"):
        copies.take()
    assert copies.all() == before


def test_a_copy_is_made_while_the_store_is_written(store: Path, copies: StoreCopies) -> None:
    busy = opened(store.parent)
    with busy.transaction():
        busy.gateways.register("half-done", 999, 1.0)
        copies.take()
    busy.gateways.register("after", 1000, 1.0)
    busy.close()
    deleted(store)
    assert recover(store, copies) is not None
    assert is_whole(store)


def test_a_power_cut_at_any_step_of_a_recovery_is_made_good_by_the_next_start(template: Path, tmp_path: Path) -> None:
    def act(folder: Path, k: int) -> Power:
        folder.mkdir()
        store = Path(shutil.copy(template, folder / "store.db"))
        copies = copies_of(store)
        copies.take()
        garbage(store)
        damaged = store.read_bytes()
        store.with_name("store.db-wal").write_bytes(b"left behind")
        with until_the_cut(k, folder) as power:
            recover(store, copies)
        recover(store, copies)
        check_file(store, quick_check, content_check)
        assert damaged in [path.read_bytes() for path in folder.glob("store.db.damaged-?")]
        return power

    assert at_every_step(act, tmp_path) >= 8


def test_a_power_cut_at_any_step_of_a_copy_leaves_a_sound_one(template: Path, tmp_path: Path) -> None:
    def act(folder: Path, k: int) -> Power:
        folder.mkdir()
        store = Path(shutil.copy(template, folder / "store.db"))
        copies = copies_of(store)
        for _ in range(COPIES_KEPT):
            copies.take()
        with until_the_cut(k, folder) as power:
            copies.take()
        assert COPIES_KEPT <= len(copies.all()) <= COPIES_KEPT + 1
        with copies.sound() as found:
            assert found is not None
            assert found[0] == copies.all()[0]
        copies.take()
        assert len(list(copies.folder.iterdir())) == COPIES_KEPT
        return power

    assert at_every_step(act, tmp_path) > 5


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:////var/lib/x/store.db", Path("/var/lib/x/store.db")),
        ("sqlite:///relative.db", Path("relative.db")),
        ("sqlite://", None),
        ("postgresql+psycopg://u@h/db", None),
        ("nonsense", None),
    ],
)
def test_only_a_sqlite_store_has_a_file(url: str, file: Path | None) -> None:
    assert database_file(url) == file
