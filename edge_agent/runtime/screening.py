"""The fault screen at work: which readings are broken, before they are stored; what begins and ends, told once."""

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.drift import faults
from edge_agent.drift.faults import FaultReport, FaultState
from edge_agent.drift.observed import Observed
from edge_agent.errors import DataError, WireError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.runtime.packing import decoded, encoded
from edge_agent.runtime.screen import Screen
from edge_agent.samples.record import SampleBatch
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages import SensorFaultEvent

TABLES = ("CREATE TABLE screening (id INTEGER PRIMARY KEY CHECK (id = 1), place TEXT NOT NULL, state BLOB NOT NULL)",)
MOST_OPEN = 16
"""Faults of a gateway that are told as open; of more only their number is."""
MOST_AN_HOUR = 60.0
BURST = 20.0
_NAME_CHARS = 128
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ScreenPlace:
    """What was told, beside the screen's own state.

    Attributes:
        epoch: random per database; part of every fault's id.
        bundle: the digest of the bundle that the state is of.
        open: of the faults told, those that last, as JSON of their events, by sensor.
        pending: events that are not in the outbox yet, as JSON.
        untold: faults that were not told since the last event.
        faulty_samples: with a broken reading, so far.
    """

    epoch: str
    bundle: str = ""
    open: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[str, ...] = ()
    untold: int = 0
    faulty_samples: int = 0


class Screening:
    """Steps the fault screen over everything that is recorded, in its order.

    A batch is looked at inside the transaction that stores it (:meth:`look`, :meth:`save`); then comes
    :meth:`committed`, or :meth:`undone`, which takes back what was looked at since; :meth:`tell` puts the events into
    the outbox. Those that it does not have, for a crash or a full disk, are put there later; one may so be told twice,
    under the same id.

    Args:
        samples_db: keeps the state, in the samples' own transactions.
        outbox: of the agent's database.
        screen_of: that of a bundle, by digest; None: that one is not screened.
        monotonic: seconds.

    Raises:
        StorageError: the database cannot be read.
    """

    def __init__(
        self,
        samples_db: Database,
        outbox: Outbox,
        *,
        gateway: str,
        screen_of: Callable[[str], Screen | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        samples_db.define("screening", TABLES)
        self._db = samples_db
        self._outbox = outbox
        self._gateway = gateway
        self._screen_of = screen_of
        self._monotonic = monotonic
        self._tokens, self._filled_s = BURST, monotonic()
        self._screen: Screen | None = None
        self._place, self._state = self._load()
        self._kept = (self._place, self._state)
        self._touched = False

    @property
    def open_faults(self) -> list[SensorFaultEvent]:
        """Those that last, of those that were told; any thread."""
        return [SensorFaultEvent.model_validate_json(said) for said in self._kept[0].open.values()]

    @property
    def faulty_samples(self) -> int:
        """Samples with a broken reading, so far; any thread."""
        return self._kept[0].faulty_samples

    def look(self, batch: SampleBatch, bundle: str) -> SampleBatch:
        """The batch with its broken readings named.

        Args:
            batch: as it was served; one that the store will refuse is given back as it is.
            bundle: the digest of the one that served.
        """
        if bundle != self._place.bundle:
            self._begin(bundle)
        screen, state = self._screen, self._state
        seen = None if screen is None else screen.seen(batch)
        if screen is None or state is None or seen is None:
            return batch
        masks: list[NDArray[np.bool_] | None] = []
        for portion in seen:
            state, screened = faults.step(screen.params, state, portion)
            masks.append(screened.faulty)
            if screened.reports:
                self._place = self._told(screened.reports)
        self._state, self._touched = state, True
        faulty = _side_by_side(seen, masks)
        if faulty is not None:
            broken = int(np.count_nonzero(faulty.any(axis=1)))
            self._place = replace(self._place, faulty_samples=self._place.faulty_samples + broken)
        return replace(batch, faulty=faulty, screened=True)

    def save(self) -> None:
        """Write what was looked at; inside the caller's transaction.

        Raises:
            StorageError: the disk refuses.
        """
        if not self._touched or self._state is None:
            return
        self._write()

    def committed(self) -> None:
        """What was looked at is kept."""
        self._kept, self._touched = (self._place, self._state), False

    def tell(self) -> None:
        """Put what is to be told into the outbox; to be called between a commit and the next look.

        Raises:
            StorageError: what is left is told by a later call.
        """
        while self._place.pending:
            event = SensorFaultEvent.model_validate_json(self._place.pending[0])
            self._outbox.put(event, Priority.TELEMETRY)
            self._place = replace(self._place, pending=self._place.pending[1:])
            self._kept = (self._place, self._state)
            _log.warning("sensor_fault", fault=event.fault, sensor=event.sensor, ended=event.until_s is not None)

    def undone(self) -> None:
        """What was looked at since the last commit was not kept."""
        self._place, self._state = self._kept
        self._touched = False

    def _begin(self, bundle: str) -> None:
        """Another bundle serves: its sensors are screened from the beginning, and what was open ends."""
        self._place = replace(_all_ended(self._place, self._state), bundle=bundle)
        self._screen = self._screen_of(bundle)
        self._state = None if self._screen is None else FaultState.start(self._screen.params)

    def _told(self, reports: tuple[FaultReport, ...]) -> ScreenPlace:
        place = self._place
        for report in reports:
            key = str(report.sensor)
            if report.until_s is not None and report.sensor >= 0:
                place = self._ended(place, key, report)
            elif len(place.open) >= MOST_OPEN or not self._may_tell():
                place = replace(place, untold=place.untold + 1)
            else:
                lasting = {} if report.sensor < 0 else {key: ""}
                event = self._event(report, len(place.open) + len(lasting), place.untold)
                said = event.model_dump_json()
                place = replace(
                    place,
                    open={**place.open, **dict.fromkeys(lasting, said)},
                    pending=(*place.pending, said),
                    untold=0,
                )
        return place

    def _ended(self, place: ScreenPlace, key: str, report: FaultReport) -> ScreenPlace:
        """The end of a fault is told if its beginning was."""
        begun = place.open.get(key)
        if begun is None:
            return place
        left = {sensor: said for sensor, said in place.open.items() if sensor != key}
        event = SensorFaultEvent.model_validate_json(begun).model_copy(
            update={"until_s": report.until_s, "open_faults": len(left), "untold": place.untold}
        )
        return replace(place, open=left, pending=(*place.pending, event.model_dump_json()), untold=0)

    def _event(self, report: FaultReport, open_faults: int, untold: int) -> SensorFaultEvent:
        since_s = report.since_s if math.isfinite(report.since_s) else 0.0
        identity = f"{self._gateway}|{self._place.epoch}|{report.sensor}|{report.kind.word}|{since_s!r}"
        return SensorFaultEvent(
            fault_id=sha256_hex(identity.encode()),
            fault=report.kind.word,
            sensor=report.name[:_NAME_CHARS] or str(report.sensor),
            unit=report.unit,
            since_s=since_s,
            until_s=report.until_s,
            value=report.value if math.isfinite(report.value) else None,
            detail=report.detail,
            open_faults=open_faults,
            untold=untold,
        )

    def _may_tell(self) -> bool:
        now_s = self._monotonic()
        self._tokens = min(BURST, self._tokens + (now_s - self._filled_s) * MOST_AN_HOUR / 3600.0)
        self._filled_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _load(self) -> tuple[ScreenPlace, FaultState | None]:
        rows = self._db.query("SELECT place, state FROM screening")
        if not rows:
            return ScreenPlace(secrets.token_hex(8)), None
        try:
            fields: dict[str, Any] = json.loads(rows[0][0])
            place = ScreenPlace(**{**fields, "pending": tuple(fields["pending"])})
            for said in (*place.open.values(), *place.pending):
                SensorFaultEvent.model_validate_json(said)
            self._screen = self._screen_of(place.bundle)
            if self._screen is None:
                return replace(place, bundle="", open={}), None
            return self._restored(self._screen, place, rows[0][1])
        except (DataError, WireError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.error("screening_state_unreadable", problem=str(error))
            self._screen = None
            return ScreenPlace(secrets.token_hex(8)), None

    def _restored(self, screen: Screen, place: ScreenPlace, stored: object) -> tuple[ScreenPlace, FaultState]:
        """With the screen's own state; one that cannot be read, as of an earlier version, begins anew, and what was
        open ends."""
        try:
            return place, FaultState.from_arrays(screen.params, decoded(stored))
        except (DataError, WireError) as error:
            _log.error("screening_begins_anew", problem=str(error))
            return _all_ended(place, None), FaultState.start(screen.params)

    def _write(self) -> None:
        assert self._state is not None
        self._db.execute(
            "INSERT INTO screening VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET place = excluded.place, state = excluded.state",
            (json.dumps(asdict(self._place)), encoded(self._state.to_arrays())),
        )


def _all_ended(place: ScreenPlace, state: FaultState | None) -> ScreenPlace:
    """The end of all that was open, at the latest sample; where that is not known, at once."""
    latest_s = math.nan if state is None else state.latest_s
    ends: list[str] = []
    for said in place.open.values():
        event = SensorFaultEvent.model_validate_json(said)
        until_s = latest_s if math.isfinite(latest_s) else event.since_s
        ends.append(event.model_copy(update={"until_s": until_s, "open_faults": 0}).model_dump_json())
    return replace(place, open={}, pending=(*place.pending, *ends))


def _side_by_side(seen: Sequence[Observed], masks: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """(n, f) the masks of all portions; None: none has one."""
    if all(mask is None for mask in masks):
        return None
    whole = [np.zeros(one.features.shape, np.bool_) if m is None else m for one, m in zip(seen, masks, strict=True)]
    return whole[0] if len(whole) == 1 else np.concatenate(whole)
