import shutil
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.wire.messages import ErrorEvent, Event
from server_bridge.store.adaptations import FAILED
from server_bridge.store.copies import Copy
from server_bridge.store.decisions import Decision
from server_bridge.store.events import Taken
from server_bridge.store.flags import CONSUMED, OPEN
from server_bridge.store.keeper import AHEAD_AT_MOST, LEDGER_FILE, StoreKeeper, open_beside
from server_bridge.store.numbers import NUMBERS_FILE, HighestNumbers
from server_bridge.store.recovery import Restored
from server_bridge.store.setback import LEAP, WENT_BACK, advance, raise_above, settle
from server_bridge.store.store import Store, store_url
from tests.store.stores import adaptation, event, flag, opened

NOW_S = 1000.0


class Bridge:
    """The store as a start of the bridge has it; ``Bridge(same folder)`` is the next start."""

    def __init__(self, folder: Path, seen: dict[str, int] | None = None, restored: Restored | None = None) -> None:
        self.folder = folder
        self.numbers = HighestNumbers(folder / NUMBERS_FILE)
        self.store = Store(store_url(folder), folder / "blobs", self.numbers)
        self.went_back = settle(self.store, self.numbers, seen or {}, restored, NOW_S)

    def copy(self) -> Path:
        """What any copy holds: the store as it is, its bridge going on."""
        copy = self.folder / "copy.db"
        with self.store.database.read() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.folder / "store.db", copy)
        advance(self.store, self.numbers)
        return copy

    def go_back(self, copy: Path) -> "Bridge":
        self.store.close()
        shutil.copy(copy, self.folder / "store.db")
        return Bridge(self.folder)

    def decisions(self, kind: str = "store") -> list[Decision]:
        return [one for one in self.store.decisions.recent() if one.kind == kind]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    opened(folder).close()
    return folder / "store.db"


@pytest.fixture
def bridge(empty: Path, tmp_path: Path) -> Bridge:
    shutil.copy(empty, tmp_path)
    return Bridge(tmp_path)


def test_starts_one_after_the_other_are_no_setback(bridge: Bridge) -> None:
    bridge.store.counters.next("adaptation")
    for _ in range(3):
        bridge.store.close()
        bridge = Bridge(bridge.folder)
        assert not bridge.went_back
    assert bridge.store.counters.next("adaptation") == 2
    assert bridge.decisions() == []


def test_a_crash_between_store_and_file_is_no_setback(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.numbers, "note", lambda name, number: None)
    advance(bridge.store, bridge.numbers)
    bridge.store.close()
    assert not Bridge(bridge.folder).went_back


def test_numbers_given_out_after_the_copy_are_not_given_again(bridge: Bridge) -> None:
    copy = bridge.copy()
    given = {name: [bridge.store.counters.next(name) for _ in range(3)] for name in ("adaptation", "cohort")}
    again = bridge.go_back(copy)
    assert again.went_back
    assert all(again.store.counters.next(name) == max(numbers) + 1 for name, numbers in given.items())


def test_a_number_given_out_in_a_transaction_that_was_rolled_back_is_not_given_again(bridge: Bridge) -> None:
    def begin_and_fail() -> None:
        with bridge.store.transaction():
            bridge.store.counters.next("cohort")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin_and_fail()
    assert bridge.store.counters.value("cohort") == 0
    assert bridge.numbers.value("cohort") == 1


def test_numbers_that_releases_and_gateways_show_are_passed(bridge: Bridge) -> None:
    bridge.store.close()
    again = Bridge(bridge.folder, seen={"cohort": 17})
    assert again.store.counters.next("cohort") == 18
    raise_above(again.store, again.numbers, "cohort", 30)
    assert again.store.counters.next("cohort") == 31


@pytest.mark.parametrize("damage", [b"", bytes(50), None])
def test_with_the_file_of_numbers_lost_too_they_leap(bridge: Bridge, damage: bytes | None) -> None:
    copy = bridge.copy()
    bridge.store.counters.next("adaptation")
    bridge.store.close()
    shutil.copy(copy, bridge.folder / "store.db")
    file = bridge.folder / NUMBERS_FILE
    file.unlink() if damage is None else file.write_bytes(damage)
    restored = Restored("it was damaged", Copy(1, copy, NOW_S - 120, 1), "store.db.damaged-1")
    again = Bridge(bridge.folder, restored=restored)
    assert again.went_back
    assert again.store.counters.next("adaptation") > LEAP
    (told,) = again.decisions()
    assert (told.reason, told.detail) == (
        "restored",
        "it was damaged; it is now store.db.damaged-1; restored from copy.db, a copy of 2 min ago",
    )


def test_a_folder_that_was_put_back_whole_goes_on_far_above_once_in_a_start(tmp_path: Path) -> None:
    keeper = StoreKeeper(None, tmp_path, {"cohort": 3})
    for _ in range(2):
        keeper.folder_is_old("a gateway trusts a newer release")
    assert [keeper.store.counters.next(name) for name in ("adaptation", "cohort")] == [LEAP + 1, LEAP + 4]
    assert [one.reason for one in keeper.store.decisions.recent()] == ["numbers-raised"]
    keeper.store.close()


@pytest.mark.parametrize("trace", [NUMBERS_FILE, LEDGER_FILE])
def test_a_store_that_is_gone_with_every_copy_is_not_replaced_by_an_empty_fleet(tmp_path: Path, trace: str) -> None:
    StoreKeeper(None, tmp_path, {}).store.close()
    (tmp_path / LEDGER_FILE).write_text("{}")
    for file in tmp_path.iterdir():
        if file.is_file() and file.name != trace:
            file.unlink()
    for open_it in (lambda: StoreKeeper(None, tmp_path, {}), lambda: open_beside(None, tmp_path)):
        with pytest.raises(StorageError, match=rf"store.db is gone.*{trace}.*gateway provision"):
            open_it()
    assert not (tmp_path / "store.db").exists()


def test_a_fleet_that_begins_again_gives_no_number_twice_and_says_so(tmp_path: Path) -> None:
    (tmp_path / LEDGER_FILE).write_text("{}")
    open_beside(None, tmp_path, founding=True).close()
    keeper = StoreKeeper(None, tmp_path, {})
    assert keeper.store.counters.next("adaptation") > LEAP
    assert [one.kind for one in keeper.store.decisions.recent()] == ["store"]
    keeper.store.close()


def test_a_gateways_cohort_is_not_founded_again_and_an_incredible_one_burns_nothing(tmp_path: Path) -> None:
    keeper = StoreKeeper(None, tmp_path, {"cohort": 3})
    for number in (9, 2, 10 + AHEAD_AT_MOST):
        keeper.observe("cohort", number)
    assert keeper.store.counters.next("cohort") == 10
    keeper.store.close()


def test_a_store_that_a_person_put_back_is_noticed_and_told_once(bridge: Bridge) -> None:
    again = bridge.go_back(bridge.copy())
    assert [one.reason for one in again.decisions()] == ["older"]
    again.store.close()
    third = Bridge(again.folder)
    assert not third.went_back
    assert len(third.decisions()) == 1


def test_the_adaptation_that_seems_to_run_is_ended_and_its_flags_are_open_again(bridge: Bridge) -> None:
    store = bridge.store
    store.adaptations.begin(adaptation("a1"))
    for number in (1, 2):
        store.flags.record("gw-0", flag(number), 3.0)
    store.flags.consume([flag(1).flag_id], "a0", 1)
    store.flags.consume([flag(2).flag_id], "a1", 1)
    again = bridge.go_back(bridge.copy())
    (ended,) = again.store.adaptations.all()
    assert (ended.status, ended.reason) == (FAILED, WENT_BACK)
    assert again.store.adaptations.running() is None
    assert {one.event.firing: one.status for one in again.store.flags.all()} == {1: CONSUMED, 2: OPEN}
    (told,) = again.decisions()
    assert (told.facts["adaptation_ended"], told.facts["flags_opened_again"]) == ("a1", 1)


def lost(bridge: Bridge) -> list[tuple[object, object]]:
    return [(one.facts["gateway"], one.facts["lost"]) for one in bridge.decisions() if one.reason == "events-lost"]


def test_what_was_acknowledged_after_the_copy_is_counted_once_for_each_gateway(bridge: Bridge) -> None:
    for number in range(1, 11):
        bridge.store.events.take(event(number, low=number), 1.0)
    copy = bridge.copy()
    for number in range(11, 18):
        bridge.store.events.take(event(number, low=number), 1.0)
    bridge.store.events.take(event(1, gateway="gw-1"), 1.0)
    again = bridge.go_back(copy)
    assert again.store.events.take(event(20, low=18), 2.0) is Taken.NEW
    assert again.store.events.take(event(18, low=18), 2.0) is Taken.NEW
    assert again.store.events.take(event(2, low=2, gateway="gw-1"), 2.0) is Taken.NEW
    assert lost(again) == [("gw-0", 7), ("gw-1", 1)]
    again.store.close()
    third = Bridge(again.folder)
    third.store.events.take(event(30, low=30), 2.0)
    assert lost(third) == [("gw-0", 7), ("gw-1", 1)], "a later gap is the outbox's own"


def test_what_is_still_held_by_its_gateway_is_not_lost(bridge: Bridge) -> None:
    for number in range(1, 5):
        bridge.store.events.take(event(number), 1.0)
    copy = bridge.copy()
    bridge.store.events.take(event(5, low=5), 1.0)
    again = bridge.go_back(copy)
    assert again.store.events.take(event(5, low=5), 2.0) is Taken.NEW
    assert again.store.events.take(event(1, epoch="a new database"), 2.0) is Taken.NEW
    assert lost(again) == []


def test_a_gateway_that_was_first_heard_after_the_copy_is_counted_too(bridge: Bridge) -> None:
    again = bridge.go_back(bridge.copy())
    body = ErrorEvent(place="here", problem="none")
    again.store.events.take(
        Event(gateway="gw-9", epoch="e", sequence=6, low=4, dropped=[(4, 5)], time_s=1.0, body=body), 2.0
    )
    assert lost(again) == [("gw-9", 3)]
