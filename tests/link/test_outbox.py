import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.errors import DataError, StorageError
from edge_agent.link.outbox import Priority
from edge_agent.wire.messages import EVENT_CAP_BYTES, CountsBucket, CountsEvent, ErrorEvent, Event
from tests.link.outbox_rig import Rig


def _places(events: list[Event]) -> list[int]:
    return [int(event.body.place) for event in events if isinstance(event.body, ErrorEvent)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "agent.db")
    yield made
    made.database.close()


def test_an_event_is_sent_and_held_until_acknowledged(rig: Rig) -> None:
    assert rig.put(7) == 1
    (event,) = rig.due()
    assert (event.gateway, event.epoch, event.sequence, event.low) == ("gw1", rig.outbox.epoch, 1, 1)
    assert event.time_s == 100.0
    assert rig.outbox.depth == 1
    assert rig.due() == []
    assert rig.outbox.acknowledge(event.epoch, [(1, 1)]) == 1
    assert rig.outbox.acknowledge(event.epoch, [(1, 1)]) == 0
    assert rig.outbox.depth == 0
    assert rig.outbox.held_bytes == 0


def test_an_acknowledgement_of_another_epoch_is_about_other_events(rig: Rig) -> None:
    rig.put(1)
    assert rig.outbox.acknowledge("other", [(0, 100)]) == 0
    assert rig.outbox.depth == 1


def test_each_database_has_its_own_epoch_and_keeps_it(tmp_path: Path) -> None:
    first, second = Rig(tmp_path / "a.db"), Rig(tmp_path / "b.db")
    assert first.outbox.epoch != second.outbox.epoch
    epoch = first.outbox.epoch
    first.put(1)
    first.database.close()
    first.open()
    assert first.outbox.epoch == epoch
    assert first.put(2) == 2
    first.database.close()
    second.database.close()


def test_put_joins_the_callers_transaction(rig: Rig) -> None:
    class Stop(Exception):
        pass

    def fail() -> None:
        with rig.database.transaction():
            rig.put(1)
            raise Stop

    with pytest.raises(Stop):
        fail()
    assert rig.outbox.depth == 0
    assert rig.put(2) == 1
    assert _places(rig.due()) == [2]


def test_flags_go_before_what_was_put_earlier(rig: Rig) -> None:
    rig.put(1)
    rig.put(2, Priority.LIFECYCLE)
    rig.put(3, Priority.FLAG)
    assert _places(rig.due()) == [3, 2, 1]


def test_a_window_full_of_telemetry_does_not_hold_a_flag_back(rig: Rig) -> None:
    for number in range(10):
        rig.put(number)
    assert _places(rig.due(limit=4)) == [0, 1, 2, 3]
    rig.put(99, Priority.FLAG)
    assert _places(rig.due(limit=4)) == [99]
    rig.outbox.acknowledge(rig.outbox.epoch, [(1, 2)])
    assert _places(rig.due(limit=4)) == [4, 5]


def test_unacknowledged_events_come_again_ever_later(rig: Rig) -> None:
    rig.put(1)
    assert len(rig.due()) == 1
    waits = []
    for _ in range(9):
        began_s = rig.monotonic.now_s
        while not rig.due():
            rig.monotonic.now_s += 0.5
        waits.append(rig.monotonic.now_s - began_s)
    assert 2.5 <= waits[0] <= 5.5
    assert waits[-1] >= 150
    assert max(waits) <= 300.5


def test_a_reconnect_or_a_new_bridge_makes_everything_due(rig: Rig) -> None:
    rig.put(1)
    rig.put(2)
    rig.due()
    rig.outbox.resend_all()
    assert _places(rig.due()) == [1, 2]


def test_what_could_not_be_handed_on_is_due_at_once(rig: Rig) -> None:
    rig.put(1)
    rig.due()
    rig.outbox.not_sent([1])
    assert _places(rig.due()) == [1]


def test_over_the_byte_cap_the_oldest_of_the_lowest_priority_goes(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a.db", max_bytes=5000)
    rig.put(0, Priority.FLAG, 900)
    rig.put(1, Priority.TELEMETRY, 900)
    rig.put(2, Priority.LIFECYCLE, 900)
    for number in range(3, 8):
        rig.put(number, Priority.TELEMETRY, 900)
    events = rig.due()
    assert _places(events) == [0, 2, 5, 6, 7]
    assert rig.outbox.shed == 3
    assert rig.outbox.held_bytes <= 5000
    assert all(event.low == 1 and event.dropped == [(2, 2), (4, 5)] for event in events)
    rig.outbox.acknowledge(rig.outbox.epoch, [(1, 1), (3, 3)])
    rig.outbox.resend_all()
    assert all(event.low == 6 and event.dropped == [] for event in rig.due())
    rig.database.close()


def test_flags_alone_over_the_cap_are_shed_too_and_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a.db", max_bytes=3000)
    for number in range(10):
        rig.put(number, Priority.FLAG, 900)
    assert rig.outbox.shed == 7
    assert _places(rig.due()) == [7, 8, 9]
    rig.database.close()


def test_the_age_cap_counts_running_time_not_the_wall_clock(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a.db", max_age_s=1000)
    rig.put(1)
    rig.wall.now_s = 4e9
    rig.monotonic.now_s += 900
    rig.put(2)
    assert rig.outbox.oldest_age_s == 900
    rig.database.close()
    rig.monotonic.now_s = 5.0  # the machine was off, its monotonic clock began anew
    rig.open()
    assert rig.outbox.oldest_age_s == 900
    rig.monotonic.now_s += 200
    assert _places(rig.due()) == [2]
    assert rig.outbox.shed == 1
    rig.database.close()


def test_dropped_ranges_in_an_envelope_are_bounded(rig: Rig) -> None:
    for number in range(1, 402):
        rig.put(number)
    with rig.database.transaction():
        rig.outbox._table.drop(range(2, 400, 2))
    (first, *_) = rig.due(limit=1)
    assert len(first.dropped) == 64
    assert first.dropped[0] == (2, 2)


def test_an_event_too_large_for_the_wire_is_refused(rig: Rig) -> None:
    buckets = [CountsBucket(bucket=-(2**53), labelled=2**53, right=2**53, loss_sum=1.23456789e-300)] * 200
    digest = "0" * 64
    large = CountsEvent(bundle=digest, weights=digest, weights_version=1, cohort="c", bucket_s=1.0, buckets=buckets)
    rig.outbox.put(large, Priority.TELEMETRY)
    too_large = ErrorEvent.model_construct(place="p", problem="x" * EVENT_CAP_BYTES)
    with pytest.raises(DataError, match="does not fit the wire"):
        rig.outbox.put(too_large, Priority.TELEMETRY)
    assert len(rig.due()) == 1


def test_an_unreadable_row_does_not_stop_the_others(rig: Rig) -> None:
    rig.put(1)
    rig.put(2)
    with rig.database.transaction():
        rig.database.execute("UPDATE outbox SET body = ? WHERE sequence = 1", (json.dumps({"kind": "gone"}).encode(),))
    assert _places(rig.due()) == [2]
    assert rig.outbox.shed == 1


def test_a_full_disk_refuses_puts_and_still_sends(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a.db")
    rig.put(1)
    pages = rig.database.query("PRAGMA page_count")[0][0]
    rig.database.query(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in range(1000):
            rig.put(number, padding=1500)

    with pytest.raises(StorageError, match="full"):
        fill()
    assert len(rig.due(limit=1000)) == rig.outbox.depth > 0
    assert rig.outbox.acknowledge(rig.outbox.epoch, [(1, 10_000)]) > 0
    rig.put(2, padding=1500)
    rig.database.close()


def test_putting_and_sending_writes_nothing_between_events(rig: Rig) -> None:
    rig.put(1)
    rig.due()
    wal = rig.path.with_name("agent.db-wal")
    before = wal.read_bytes()
    for _ in range(20):
        rig.monotonic.now_s += 1
        rig.due()
    assert wal.read_bytes() == before
