"""A store that went back, restored by the bridge or by a person: noticed at the start, and made safe to go on."""

from collections.abc import Mapping

import structlog

from server_bridge.store.adaptations import FAILED
from server_bridge.store.decisions import Fact
from server_bridge.store.numbers import HighestNumbers
from server_bridge.store.recovery import LogLost, Restored
from server_bridge.store.store import Store

GENERATION = "generation"
SETBACKS = "setbacks"
RISING = ("adaptation", "cohort")
LEAP = 1000
"""How far numbers are raised when the store went back and the file that noted them is lost, or old, too."""
WENT_BACK = "store-went-back"

_log = structlog.get_logger(__name__)


def settle(
    store: Store,
    numbers: HighestNumbers,
    seen: Mapping[str, int],
    restored: Restored | LogLost | None,
    now_s: float,
    *,
    ran_before: bool = False,
) -> bool:
    """Call it at the start, before anything is decided; whether the store went back.

    A store that went back does not know what was decided since: the adaptation that it thinks is running
    is ended (its flags open again, so that another begins if they still say something), numbers go on
    above the highest ever given out, and each gateway's next event tells what is missing.

    Args:
        seen: the highest number by counter that releases show.
        restored: what :func:`~server_bridge.store.recovery.recover` did.
        now_s: seconds since 1970, for records.
        ran_before: whether a bridge has run in this folder: a store that no bridge has used is then not the first.

    Raises:
        StorageError: the disk or the database refuses; the next start does it again.
    """
    generation = store.counters.value(GENERATION)
    behind = generation < numbers.value(GENERATION) or (ran_before and generation == 0)
    went_back = behind or restored is not None
    leap = LEAP if went_back and numbers.is_lost else 0
    with store.transaction():
        for name in RISING:
            floor = max(store.counters.value(name), numbers.value(name), seen.get(name, 0))
            store.counters.raise_to(name, floor + leap)
        if went_back:
            _go_on(store, _why(restored, now_s), restored.reason if restored else "older", now_s)
    for name in RISING:
        numbers.note(name, store.counters.value(name))
    advance(store, numbers)
    return went_back


def advance(store: Store, numbers: HighestNumbers) -> None:
    """Any copy of the store made before this is older than what is noted beside it.

    Raises:
        StorageError: the disk or the database refuses.
    """
    generation = 1 + max(store.counters.value(GENERATION), numbers.value(GENERATION))
    store.counters.raise_to(GENERATION, generation)
    numbers.note(GENERATION, generation)  # after the store: a crash between must not look like a setback


def leap(store: Store, numbers: HighestNumbers, why: str, now_s: float) -> None:
    """Go on far above: what was given out since the folder was copied is nowhere noted.

    Raises:
        StorageError: the disk or the database refuses.
    """
    with store.transaction():
        for name in RISING:
            raise_above(store, numbers, name, store.counters.value(name) + LEAP)
        detail = f"{', '.join(RISING)} go on {LEAP} higher: {why}"
        store.decisions.record("store", "numbers-raised", detail, now_s)
    _log.warning("numbers-raised", detail=detail)


def raise_above(store: Store, numbers: HighestNumbers, name: str, number: int) -> None:
    """A number that somebody else knows of is not given out again.

    Raises:
        StorageError: the disk or the database refuses.
    """
    store.counters.raise_to(name, number)
    numbers.note(name, number)


def _go_on(store: Store, why: str, reason: str, now_s: float) -> None:
    store.events.setbacks = store.counters.next(SETBACKS)
    running = store.adaptations.running()
    reopened = 0
    if running is not None:
        store.adaptations.end(running.id, FAILED, WENT_BACK, now_s)
        reopened = store.flags.reopen(running.id)
    failed = store.commands.fail_open(WENT_BACK, now_s)
    facts: dict[str, Fact] = {"adaptation_ended": running.id if running else None, "flags_opened_again": reopened}
    facts |= {f"{name}_above": store.counters.value(name) for name in RISING} | {"commands_failed": failed}
    _log.error("store-went-back", detail=why, **facts)
    store.decisions.record("store", reason, why, now_s, facts=facts)


def _why(restored: Restored | LogLost | None, now_s: float) -> str:
    if restored is None:
        return (
            "the store is older than what is noted beside it: a person put another in its place, or commits were lost"
        )
    return restored.describe(now_s)
