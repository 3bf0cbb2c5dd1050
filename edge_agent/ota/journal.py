"""What must survive a power cut besides floors and files: state, refusals, bars, signed facts.

Each step and the event that reports it commit in one transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from edge_agent.errors import RejectedUpdate
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.ota.slot import Slot
from edge_agent.ota.transitions import OtaEvent, OtaState, next_state
from edge_agent.wire.codec import Name, WireModel, decode, encode
from edge_agent.wire.messages.event import EventBody, UpdateLifecycleEvent
from edge_agent.wire.release import CommandKey

REFUSALS_KEPT = 256
_FACT_CAP_BYTES = 64 * 1024
_KEYS = "command-keys"
_SETTLED = "settled-map"
_SETTLED_AS = "settled-as"
_TABLES = (
    "CREATE TABLE ota_state (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL, map_digest TEXT, slot TEXT)",
    "CREATE TABLE ota_refusal (number INTEGER PRIMARY KEY AUTOINCREMENT, map_digest TEXT UNIQUE, reason TEXT NOT NULL)",
    "CREATE TABLE ota_barred (bundle TEXT, cohort TEXT, version INTEGER, reason TEXT NOT NULL,"
    " PRIMARY KEY (bundle, cohort, version)) WITHOUT ROWID",
    "CREATE TABLE ota_fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


class _CommandKeys(WireModel):
    keys: dict[Name, CommandKey]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an update stands: its map and, once chosen, its target."""

    state: OtaState
    map_digest: str | None = None
    slot: Slot | None = None


class OtaJournal:
    """The state machine's memory in the agent's database.

    Args:
        outbox: in the same database.

    Raises:
        StorageError: the tables cannot be made or read.
    """

    def __init__(self, database: Database, outbox: Outbox) -> None:
        self._database = database
        self._outbox = outbox
        database.define("ota", _TABLES)
        self._progress = self._read()

    @property
    def progress(self) -> Progress:
        """Where things stand."""
        return self._progress

    def step(
        self, event: OtaEvent, *, map_digest: str | None = None, slot: Slot | None = None, detail: str = ""
    ) -> None:
        """Take one step of the table and report the state it leads to.

        Raises:
            ValueError: the table has no such step.
            StorageError: nothing has changed.
        """
        with self._database.transaction():
            reached = self._take(event, map_digest, slot, detail)
        self._progress = reached

    def settle(self, event: OtaEvent, *, slot: Slot) -> None:
        """Take the step that ends the work on a map; a map settled is not worked on again."""
        with self._database.transaction():
            reached = self._take(event, None, slot, "")
            self._settle_map(reached)
        self._progress = reached

    def reassert(self, map_digest: str, *, slot: Slot) -> None:
        """The settled map was seen again: a refusal of another map since then is no longer where things stand.

        A settled map whose own target was refused stays refused.
        """
        if self._progress.state is not OtaState.REFUSED or self._fact(_SETTLED_AS) != OtaState.COMMITTED.value:
            return
        with self._database.transaction():
            reached = self._move(OtaEvent.REASSERTED, map_digest, slot)
        self._progress = reached

    def last_refusal(self) -> tuple[str, str] | None:
        """Map digest and reason of the newest refusal, whatever has become of it since."""
        rows = self._database.query("SELECT map_digest, reason FROM ota_refusal ORDER BY number DESC LIMIT 1")
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def refuse(self, map_digest: str, error: RejectedUpdate, *, slot: Slot | None = None, final: bool) -> None:
        """Record a refusal; it is reported once per map.

        Args:
            slot: the target that is refused; ``None``: the map itself.
            final: the map is settled by it.
        """
        with self._database.transaction():
            reached = self._move(OtaEvent.REFUSED, map_digest, slot)
            if self._note_refusal(map_digest, error.reason):
                self._tell("refused", reached, reason=error.reason, detail=error.problem)
            if final:
                self._settle_map(reached)
        self._progress = reached

    def give_up(self, slot: Slot, reason: str, detail: str, *, for_good: bool) -> None:
        """Report that a slot was given up at start.

        Args:
            for_good: bar it; else the release is worked on once more, which fetches it anew.
        """
        with self._database.transaction():
            if for_good:
                self.bar(slot, reason)
            else:
                self._database.execute("DELETE FROM ota_fact WHERE name = ?", (_SETTLED,))
            self._tell("rolled_back", Progress(OtaState.ROLLED_BACK, None, slot), reason=reason, detail=detail)

    def bar(self, slot: Slot, reason: str) -> None:
        """Never activate this version of the cohort's weights again."""
        with self._database.transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO ota_barred VALUES (?, ?, ?, ?)",
                (slot.bundle, slot.cohort, slot.version, reason),
            )

    def barred(self, slot: Slot) -> str | None:
        """Why a slot is barred, if it is."""
        rows = self._database.query(
            "SELECT reason FROM ota_barred WHERE bundle = ? AND cohort = ? AND version = ?",
            (slot.bundle, slot.cohort, slot.version),
        )
        return str(rows[0][0]) if rows else None

    @property
    def has_settled(self) -> bool:
        """Whether the work on the last map has ended and is not to be done again."""
        return self._fact(_SETTLED) is not None

    def is_settled(self, map_digest: str) -> bool:
        """Whether the work on a map has ended."""
        return self._fact(_SETTLED) == map_digest

    def report(self, body: EventBody) -> None:
        """Report something that changes no state."""
        self._outbox.put(body, Priority.LIFECYCLE)

    def keep_command_keys(self, keys: Mapping[str, CommandKey]) -> None:
        """Remember the command keys of the last verified ``fleet.json``."""
        with self._database.transaction():
            self._keep(_KEYS, encode(_CommandKeys(keys=dict(keys))).decode())

    def command_keys(self) -> Mapping[str, CommandKey]:
        """The command keys of the last verified ``fleet.json``."""
        value = self._fact(_KEYS)
        if value is None:
            return {}
        with self._database.understood():
            return decode(_CommandKeys, value.encode(), cap_bytes=_FACT_CAP_BYTES).keys

    def _take(self, event: OtaEvent, map_digest: str | None, slot: Slot | None, detail: str) -> Progress:
        reached = self._move(event, map_digest, slot)
        if event in (OtaEvent.SHADOW_SKIPPED, OtaEvent.PROBATION_SKIPPED):
            self._tell("skipped", reached, reason=self._progress.state.value)
        self._tell(reached.state.value, reached, detail=detail)
        return reached

    def _move(self, event: OtaEvent, map_digest: str | None, slot: Slot | None) -> Progress:
        before = self._progress
        state = next_state(before.state, event)
        arrived = event is OtaEvent.MAP_ARRIVED
        reached = Progress(
            state,
            map_digest or before.map_digest,
            slot if slot is not None or arrived else before.slot,
        )
        self._database.execute(
            "INSERT OR REPLACE INTO ota_state VALUES (1, ?, ?, ?)",
            (state.value, reached.map_digest, encode(reached.slot).decode() if reached.slot else None),
        )
        return reached

    def _read(self) -> Progress:
        rows = self._database.query("SELECT state, map_digest, slot FROM ota_state")
        if not rows:
            return Progress(OtaState.IDLE)
        with self._database.understood():
            state, map_digest, slot = rows[0]
            target = decode(Slot, slot.encode(), cap_bytes=_FACT_CAP_BYTES) if slot else None
            return Progress(OtaState(state), map_digest, target)

    def _note_refusal(self, map_digest: str, reason: str) -> bool:
        first = self._database.execute(
            "INSERT OR IGNORE INTO ota_refusal (map_digest, reason) VALUES (?, ?)", (map_digest, reason)
        )
        self._database.execute(
            "DELETE FROM ota_refusal WHERE number <= (SELECT max(number) FROM ota_refusal) - ?", (REFUSALS_KEPT,)
        )
        return first == 1

    def _settle_map(self, reached: Progress) -> None:
        if reached.map_digest is not None:
            self._keep(_SETTLED, reached.map_digest)
            self._keep(_SETTLED_AS, reached.state.value)

    def _keep(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO ota_fact VALUES (?, ?)", (name, value))

    def _fact(self, name: str) -> str | None:
        rows = self._database.query("SELECT value FROM ota_fact WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def _tell(self, step: str, about: Progress, *, reason: str | None = None, detail: str = "") -> None:
        slot = about.slot
        self.report(
            UpdateLifecycleEvent(
                step=step,
                reason=reason,
                detail=detail,
                bundle=slot.bundle if slot else None,
                weights=slot.weights if slot else None,
                cohort=slot.cohort if slot else None,
                version=slot.version if slot else None,
                map_digest=about.map_digest,
            )
        )
