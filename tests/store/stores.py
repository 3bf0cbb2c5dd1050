"""A small store with a little of everything, and ways to damage its file."""

import random
from collections.abc import Callable
from pathlib import Path

from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages import Event, FlagEvent
from server_bridge.store.adaptations import RUNNING, Adaptation
from server_bridge.store.store import Store, store_url

PAGE_BYTES = 4096
GATEWAYS = 40


def flag(number: int) -> FlagEvent:
    return FlagEvent(
        flag_id=sha256_hex(f"flag {number}".encode()),
        monitor="loss-rise",
        firing=number,
        bundle="b" * 64,
        weights="e" * 64,
        weights_version=1,
        cohort="root",
        first_drifted_sample="s1",
        first_drifted_time_s=1.0,
        statistic=2.0,
        threshold=1.0,
        trainable_samples=10,
    )


def event(sequence: int, *, low: int = 1, gateway: str = "gw-0", epoch: str = "e1") -> Event:
    return Event(gateway=gateway, epoch=epoch, sequence=sequence, low=low, time_s=1.0, body=flag(sequence))


def adaptation(name: str) -> Adaptation:
    return Adaptation(name, "b" * 64, "clma", RUNNING, 2, 1, 0, 5.0, None, "because", {"root": "e" * 64}, None)


def opened(folder: Path) -> Store:
    return Store(store_url(folder), folder / "blobs")


def fill(folder: Path) -> Path:
    """Make it, and close it; its file."""
    store = opened(folder)
    for number in range(GATEWAYS):
        store.gateways.register(f"gw-{number}", number + 1, 1.0)
    for number in range(1, 61):
        store.events.take(event(number), 2.0)
    store.close()
    return folder / "store.db"


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_in_a_page(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size - PAGE_BYTES // 2])


def random_in_the_middle(file: Path) -> None:
    data = bytearray(file.read_bytes())
    start = len(data) // 3
    data[start : start + 4 * PAGE_BYTES] = random.Random(1).randbytes(4 * PAGE_BYTES)
    file.write_bytes(data)


def garbage(file: Path) -> None:
    file.write_bytes(random.Random(2).randbytes(10_000))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def deleted(file: Path) -> None:
    file.unlink()


def a_word_changed(file: Path) -> None:
    """Within a row: SQLite finds nothing wrong with that."""
    data = file.read_bytes()
    assert b'"firing":60' in data
    file.write_bytes(data.replace(b'"firing":60', b"\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07"))


STRUCTURAL: tuple[Callable[[Path], None], ...] = (
    zeroed,
    truncated,
    cut_in_a_page,
    random_in_the_middle,
    garbage,
    emptied,
    deleted,
)
