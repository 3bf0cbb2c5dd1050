from pathlib import Path

from server_bridge.store.merges import MERGED, QUEUED, REFUSED
from server_bridge.store.store import Store, store_url


def test_a_request_is_queued_until_it_ends_and_ends_once(tmp_path: Path) -> None:
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    first = store.merges.ask("b" * 64, "c2", "c1", asked_by="ann", why="alike", now_s=5.0)
    second = store.merges.ask("b" * 64, "c3", "root", asked_by="bob", why="why not", now_s=6.0)
    assert [(each.id, each.gone, each.kept, each.asked_s) for each in store.merges.queued()] == [
        (first, "c2", "c1", 5.0),
        (second, "c3", "root", 6.0),
    ]
    store.merges.end(first, MERGED, "release 7", 8.0)
    store.merges.end(first, REFUSED, "too late", 9.0)
    assert [(each.status, each.outcome, each.ended_s) for each in store.merges.all()] == [
        (MERGED, "release 7", 8.0),
        (QUEUED, None, None),
    ]
    store.close()


def test_the_oldest_that_have_ended_are_forgotten_and_none_that_waits(tmp_path: Path) -> None:
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    numbers = [
        store.merges.ask("b" * 64, f"c{each}", "c1", asked_by="a", why="", now_s=float(each)) for each in range(5)
    ]
    for number in numbers[1:]:
        store.merges.end(number, REFUSED, "no", 9.0)
    assert store.merges.trim(keep=2) == 2
    assert [each.id for each in store.merges.all()] == [numbers[0], *numbers[3:]]
    assert store.merges.trim(keep=2) == 0
    store.close()
