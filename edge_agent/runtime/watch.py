"""The drift monitor at work: labelled samples in, flags out, state and flag in one transaction."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.drift.change_point import change_index
from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseParams, LossRiseState, Verdict, rebaseline, step
from edge_agent.errors import DataError, StorageError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.scoring import row_losses
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.messages import FlagEvent

TABLES = (
    """CREATE TABLE watch (
        name TEXT PRIMARY KEY,
        place TEXT NOT NULL,
        state TEXT NOT NULL
    )""",
)
CATCH_UP_ROWS = 1000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the monitor stands.

    Attributes:
        epoch: random per database; with the firing number it makes a flag's id.
        weights: the digest of the weights the state is about.
        rule: the constants the state was made with.
        cursor: arrival number of the last labelled sample judged or passed over.
        drifted_from: id of the first drifted sample of the latest flag; training starts there.
        open_flag: whether no activation has followed that flag yet.
        flag: that flag as JSON, as long as it is open: a bridge that lost it gets it again.
    """

    epoch: str
    weights: str
    rule: str = ""
    cursor: int = 0
    drifted_from: str | None = None
    open_flag: bool = False
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where the monitor stands after batches that are not committed yet.

    Attributes:
        verdict: of the latest batch.
        events: the flags raised by them.
    """

    place: Place
    state: LossRiseState
    verdict: Verdict | None
    events: tuple[FlagEvent, ...] = ()


class DriftWatch:
    """Steps the monitor over batches of the next B labelled samples that the active weights served.

    A flag that the disk refused is raised when the disk is back: its rows are read again.

    Args:
        database: holds the monitor's state; the outbox must use the same one.
        params: the rule in force. State made by another rule is not compared with: it begins
            as after an activation.
    """

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        store: SampleStore,
        *,
        gateway: str,
        manifest: Manifest,
        params: LossRiseParams,
    ) -> None:
        database.define("watch", TABLES)
        self._database = database
        self._outbox = outbox
        self._store = store
        self._gateway = gateway
        self._manifest = manifest
        self._params = params
        self._rule = json.dumps(asdict(params), sort_keys=True)
        self._buffer: list[LabelledRow] = []
        self._behind = True
        self._place, self._state = self._load()
        self._said_to: str | None = None
        self.unjudged_batches = 0
        self.last_verdict: Verdict | None = None

    @property
    def training_from(self) -> str | None:
        """The first sample that training may use; ``None``: all."""
        return self._place.drifted_from

    @property
    def open_flag(self) -> bool:
        """Whether a flag stands that no activation has answered."""
        return self._place.open_flag

    @property
    def behind(self) -> bool:
        """Whether the store may hold rows that are still to be judged: at the start, and after a failure."""
        return self._behind

    @property
    def cursor(self) -> int:
        """Arrival number of the last labelled sample judged."""
        return self._place.cursor

    @property
    def firings(self) -> int:
        """Flags so far."""
        return self._state.firings

    def consume(self, rows: list[LabelledRow], active: Prepared) -> int:
        """Judge what has arrived; returns how many flags were raised.

        Rows served by other weights than the active ones are passed over. Rows that do not fill a
        batch wait. The first call, and the one after a failure, reads the store from the cursor on.

        Args:
            rows: as the store gave them; it must hold them already.

        Raises:
            StorageError: what was not judged will be by a later call.
        """
        try:
            if active.weights != self._place.weights:
                self._activate(active)
            flags = sum(self._take(page, active) for page in (self._unjudged() if self._behind else [rows]))
        except StorageError:
            self._behind, self._buffer = True, []
            raise
        self._behind = False
        return flags

    def bridge_started(self, boot_id: str) -> bool:
        """To each start of the bridge the open flag is said once more: its store may have lost it.

        The bridge knows a flag by its id, and counts it once. Any thread; returns whether there was one to say.

        Raises:
            StorageError: it could not be held for sending; a repeated call tries again.
        """
        flag = self._place.flag
        if flag is None or boot_id == self._said_to:
            return False
        with self._database.transaction():
            self._outbox.put(FlagEvent.model_validate_json(flag), Priority.FLAG)
        self._said_to = boot_id
        return True

    def _unjudged(self) -> Iterator[list[LabelledRow]]:
        last = self._place.cursor
        while page := self._store.labelled_since(last, CATCH_UP_ROWS):
            yield page
            last = page[-1].arrival

    def _take(self, rows: list[LabelledRow], active: Prepared) -> int:
        """All batches that are full now are one transaction: where the monitor stands after them, and their flags."""
        self._buffer += [row for row in rows if row.weights == active.weights and row.arrival > self._place.cursor]
        standing, judged = _Standing(self._place, self._state, self.last_verdict), 0
        size = self._params.batch_size
        for start in range(0, len(self._buffer) - size + 1, size):
            standing = self._judge(standing, self._buffer[start : start + size], active)
            judged = start + size
        if judged:
            self._settle(standing)
            self._buffer = self._buffer[judged:]
        return len(standing.events)

    def _judge(self, standing: "_Standing", batch: list[LabelledRow], active: Prepared) -> "_Standing":
        place, state = replace(standing.place, cursor=batch[-1].arrival), standing.state
        try:
            losses = row_losses(self._manifest.loss, batch, delta=self._manifest.huber_delta)
            before = min(state.previous) if state.previous else 0.0
            state, verdict = step(self._params, state, losses)
        except DataError as error:
            self.unjudged_batches += 1
            _log.error("batch_not_judged", problem=str(error), first=batch[0].id)
            return replace(standing, place=place)
        if not verdict.fired:
            return _Standing(place, state, verdict, standing.events)
        event = self._flag(batch, losses, before, state, verdict, active)
        said = event.model_dump_json()
        place = replace(place, drifted_from=event.first_drifted_sample, open_flag=True, flag=said)
        return _Standing(place, state, verdict, (*standing.events, event))

    def _settle(self, standing: "_Standing") -> None:
        with self._database.transaction():
            self._save(standing.place, standing.state)
            for event in standing.events:
                self._outbox.put(event, Priority.FLAG)
        self._place, self._state, self.last_verdict = standing.place, standing.state, standing.verdict
        for event in standing.events:
            _log.warning("drift_flagged", rise=event.statistic, threshold=event.threshold, flag=event.flag_id)

    def _flag(
        self,
        batch: list[LabelledRow],
        losses: NDArray[np.float64],
        before: float,
        state: LossRiseState,
        verdict: Verdict,
        active: Prepared,
    ) -> FlagEvent:
        order = np.argsort([row.time_s for row in batch], kind="stable")
        clip = self._params.clip if self._params.clip is not None else np.inf
        first = batch[order[change_index(np.minimum(losses[order], clip), before)]]
        identity = f"{self._gateway}|{MONITOR_NAME}|{self._place.epoch}|{state.firings}"
        return FlagEvent(
            flag_id=sha256_hex(identity.encode()),
            monitor=MONITOR_NAME,
            firing=state.firings,
            bundle=active.bundle,
            weights=active.weights,
            weights_version=active.version,
            cohort=active.cohort,
            first_drifted_sample=first.id,
            first_drifted_time_s=first.time_s,
            statistic=verdict.statistic,
            threshold=verdict.threshold,
            evidence={
                "batch_size": len(batch),
                "batch_loss": verdict.batch_loss,
                "loss_before": before,
                "batches_seen": state.batches,
                "last_time_s": float(batch[order[-1]].time_s),
            },
            trainable_samples=self._store.trainable_count(first.id),
        )

    def _losses(self, batch: list[LabelledRow]) -> NDArray[np.float64]:
        return row_losses(self._manifest.loss, batch, delta=self._manifest.huber_delta)

    def _activate(self, active: Prepared) -> None:
        """New weights: history and hold end, the warm-up begins; the first start keeps a fresh state.

        What waits for a full batch was served by the weights before and is judged no more, even
        if they come back.
        """
        cursor = self._buffer[-1].arrival if self._buffer else self._place.cursor
        place = replace(self._place, weights=active.weights, open_flag=False, flag=None, cursor=cursor)
        state = rebaseline(self._params, self._state) if self._place.weights else self._state
        with self._database.transaction():
            self._save(place, state)
        self._place, self._state, self._buffer = place, state, []

    def _load(self) -> tuple[Place, LossRiseState]:
        place, state = self._stored() or (Place(secrets.token_hex(8), ""), LossRiseState.start(self._params))
        if place.rule != self._rule:
            state = rebaseline(self._params, state) if place.weights else LossRiseState.start(self._params)
            place = replace(place, rule=self._rule)
            with self._database.transaction():
                self._save(place, state)
        return place, state

    def _stored(self) -> tuple[Place, LossRiseState] | None:
        rows = self._database.query("SELECT place, state FROM watch WHERE name = ?", (MONITOR_NAME,))
        if not rows:
            return None
        try:
            place = Place(**json.loads(rows[0][0]))
            if place.flag is not None:
                FlagEvent.model_validate_json(place.flag)
            return place, LossRiseState.from_json(rows[0][1])
        except (DataError, ValueError, TypeError) as error:
            _log.error("monitor_state_unreadable", problem=str(error))
            return None

    def _save(self, place: Place, state: LossRiseState) -> None:
        self._database.execute(
            "INSERT INTO watch VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET place = excluded.place, state = excluded.state",
            (MONITOR_NAME, json.dumps(asdict(place)), state.to_json()),
        )
