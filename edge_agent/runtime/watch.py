"""The drift monitors at work: samples and labels in, one verdict and its flags out, all in one transaction."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import structlog

from edge_agent.drift.policy.catalogue import ARRIVALS, LABEL_FREE, MonitorState
from edge_agent.drift.policy.labels import LabelFacts
from edge_agent.drift.policy.season import SeasonState
from edge_agent.drift.policy.verdict import Role, activated
from edge_agent.errors import ConfigError, DataError, StorageError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.runtime.watch_answer import Asked, asked
from edge_agent.runtime.watch_answered import before_activation
from edge_agent.runtime.watch_held import Held, ServedPart, Shown
from edge_agent.runtime.watch_judging import Judged, Judging
from edge_agent.runtime.watch_labels import labels_noted, looked_at, served_noted
from edge_agent.runtime.watch_overlay import may_swap, own_weights_serve, serves_as, with_overlay
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_served import ServedViews
from edge_agent.runtime.watch_standing import SEASON, Standing, StandingTable
from edge_agent.samples.record import LabelledRow, Part
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared
from edge_agent.wire.messages import FlagEvent

CATCH_UP_ROWS = 1000
ARRIVALS_KEPT_EVERY_S = 60.0
"""The draw of labels is 36 kB, and need not be there to the last sample."""
_log = structlog.get_logger(__name__)


class DriftWatch:
    """Steps every monitor over batches of its size, by the active weights' samples, and the policy after each.

    All full batches that wait are one step of their monitor, which finds of each what it would find alone. What comes
    within ``together_s`` of the last judgement is held back, so that a fast stream costs less a sample; a slow one is
    judged at every batch.

    Labelled samples are judged in the order in which their labels came, each once: a restart, or a disk that was full,
    takes up where the last commit stood. Served samples are judged as they are recorded; those of a batch that was not
    full at a kill are not judged. A flag that the disk refused is raised when the disk is back.

    Args:
        database: holds the standing; the outbox must use the same one.
        rules: of the bundle that serves at first. A state that was made with other constants is not gone on with: its
            monitor begins as after an activation.
        adopt: gives the rules of another bundle, once that serves; None: those at hand stay.
        judged: told every batch that was judged, before it is committed; after a failure it is told again. None: nobody
            is, which costs less.
        together_s: seconds for which a call may hold back what it brought, for one of a later call to be judged with;
            0: none is held back.
    """

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        store: SampleStore,
        *,
        gateway: str,
        rules: WatchRules,
        adopt: Callable[[Prepared], WatchRules] | None = None,
        judged: Callable[[Judged], None] | None = None,
        together_s: float = 0.0,
    ) -> None:
        self._held = Held(together_s)
        self._database = database
        self._table = StandingTable(database)
        self._outbox = outbox
        self._store = store
        self._adopt = adopt
        self._judging = Judging(gateway, store, rules, judged)
        self._buffer: list[LabelledRow] = []
        self._served = ServedViews(rules)
        self._behind = True
        self._said_to: str | None = None
        self._facts_s = self._arrivals_kept_s = -math.inf
        self._standing = self._table.load(rules)
        self._settle(self._standing, None)

    @property
    def rules(self) -> WatchRules:
        """The rules in force; any thread."""
        return self._judging.rules

    @property
    def standing(self) -> Standing:
        """Where everything stands, as it was committed last; any thread."""
        return self._standing

    @property
    def training_from(self) -> str | None:
        """The first sample that training may use; ``None``: all."""
        return self._standing.place.drifted_from

    @property
    def open_flag(self) -> bool:
        """Whether a flag stands that no activation has answered."""
        return self._standing.place.open_flag

    @property
    def may_swap(self) -> bool:
        """Whether another overlay may be laid on the release, as far as the monitors are concerned; any thread."""
        return may_swap(self.rules, self._standing)

    @property
    def behind(self) -> bool:
        """Whether there may be rows that a call without new ones would judge: at the start, after a failure, and while
        some are held back."""
        return self._behind or bool(self._held)

    @property
    def cursor(self) -> int:
        """Arrival number of the last labelled sample judged."""
        return self._standing.place.cursor

    @property
    def firings(self) -> int:
        """Flags so far."""
        return self._standing.policy.flags

    @property
    def waiting(self) -> dict[str, int]:
        """Samples that wait for a full batch, by monitor; any thread."""
        return {self.rules.labelled.monitor.name: len(self._buffer), **self._served.waiting}

    @property
    def unjudged_batches(self) -> int:
        """Batches that could not be judged since the start."""
        return self._judging.unjudged

    @property
    def problems(self) -> dict[str, str]:
        """Why a monitor's latest batch could not be judged, by its name; any thread."""
        return dict(self._judging.problems)

    def consume(
        self,
        rows: list[LabelledRow],
        active: Prepared,
        served: Sequence[ServedPart] = (),
        *,
        now_s: float | None = None,
    ) -> int:
        """Judge what was served and what labels have come; returns how many flags were raised.

        Samples served by other weights than the active ones are passed over. Samples that do not fill a batch wait;
        what else may be held back (``together_s``) is so until a call that brings nothing, at the latest. The first
        call, and the one after a failure, reads labelled ones from the store from the cursor on.

        Args:
            rows: as the store gave them; it must hold them already.
            served: since the call before, in their order.
            now_s: running time, by which labels are late; None: not known.

        Raises:
            StorageError: what was not judged will be by a later call.
        """
        flags = 0
        same = self._held.active is active
        if self._held and not same:  # what another has served is judged by that
            flags = self._judge(*self._held.taken(), now_s)
        known = same and active.weights == self._standing.place.weights and active.bundle == self.rules.bundle
        shown = [self._served.shown(batch, made) if known else Shown(batch, made) for batch, made in served]
        self._held.add(rows, shown, active)
        if self._held.may_wait(bool(rows or served), now_s) and same and not self._behind:
            return flags
        return flags + self._judge(*self._held.taken(), now_s)

    def _judge(self, rows: list[LabelledRow], served: Sequence[Shown], active: Prepared, now_s: float | None) -> int:
        try:
            if active.weights != self._standing.place.weights:
                self._activate(active)
            if not serves_as(self._standing.place, active):
                self._overlay(active)
            at = self._after_served(self._standing, served, active, now_s)
            flags = 0
            for page in self._unjudged() if self._behind else [rows]:
                at = labels_noted(self.rules, at, page, None if self._behind else now_s)
                flags += self._settle(self._after_labelled(at, page, active), now_s)
                at = self._standing
            if at is not self._standing:
                flags += self._settle(at, now_s)
        except StorageError:
            self._behind, self._buffer = True, []
            self._served.rewind()
            raise
        self._behind = False
        return flags

    def bridge_started(self, boot_id: str) -> bool:
        """To each start of the bridge the open flag is said once more: its store may have lost it.

        The bridge knows a flag by its id, and counts it once. Any thread; returns whether there was one to say.

        Raises:
            StorageError: it could not be held for sending; a repeated call tries again.
        """
        flag = self._standing.place.flag
        if flag is None or boot_id == self._said_to:
            return False
        with self._database.transaction():
            self._outbox.put(FlagEvent.model_validate_json(flag), Priority.FLAG)
        self._said_to = boot_id
        return True

    def _unjudged(self) -> Iterator[list[LabelledRow]]:
        last = self._standing.place.cursor
        while page := self._store.labelled_since(last, CATCH_UP_ROWS):
            yield page
            last = page[-1].arrival

    def _after_served(
        self,
        at: Standing,
        served: Sequence[Shown],
        active: Prepared,
        now_s: float | None,
    ) -> Standing:
        served = [one for one in served if one.made.weights == active.made_by]
        rows = sum(len(one.batch.ids) for one in served)
        if rows:
            at = replace(at, facts=replace(at.facts, rows_since=at.facts.rows_since + rows))
        if self._served or self.rules.arrivals is not None:
            own = active.bundle == self.rules.bundle  # else its own could not be used: what it serves is not judged
            for shown in served if own else ():
                at = served_noted(self.rules, at, self._served.add(shown, active), now_s)
        at, self._facts_s = looked_at(self.rules, at, now_s, self._facts_s)
        for one in self.rules.served:
            batches = self._served[one.monitor.name]
            if one.monitor.role is Role.ACCURACY and not own_weights_serve(self.rules, active):
                batches.clear()  # it knows the mistakes of the bundle's own weights, and no others'
            while (taken := self._served.take(one)) is not None:
                at = self._judging.served(at, *taken, batches.began, active)
        return at

    def _after_labelled(self, at: Standing, rows: list[LabelledRow], active: Prepared) -> Standing:
        """All batches that are full now, and what waits if it alarms already."""
        cursor = self._standing.place.cursor
        told = {weights for weights in {row.weights for row in rows} if at.place.judges(weights)}
        unfit = Part.UNFIT  # a broken sensor is no drift
        self._buffer += [row for row in rows if row.weights in told and row.arrival > cursor and row.part is not unfit]
        size = self.rules.labelled.monitor.batch_size
        full = len(self._buffer) // size * size
        if full:
            at = self._judging.labelled(at, self._buffer[:full], active)
        waiting = self._buffer[full:]
        return self._judging.early(at, waiting, active) if waiting else at

    def _settle(self, at: Standing, now_s: float | None) -> int:
        """Commit; nothing is written where nothing was judged. Returns how many flags were raised."""
        if at.touched:
            at = replace(at, touched=at.touched | self._also_kept(at, now_s))
            with self._database.transaction():
                self._table.save(at, self.rules)
                for event in at.events:
                    self._outbox.put(event, Priority.FLAG)
            self._buffer = [row for row in self._buffer if row.arrival > at.place.cursor]
            self._served.settled()
        self._standing = at.settled()
        for event in at.events:
            figures = {"statistic": event.statistic, "threshold": event.threshold, "severity": event.severity}
            _log.warning("drift_flagged", monitor=event.monitor, flag=event.flag_id, shift=event.shift, **figures)
        return len(at.events)

    def _also_kept(self, at: Standing, now_s: float | None) -> set[str]:
        if now_s is None or now_s - self._arrivals_kept_s < ARRIVALS_KEPT_EVERY_S or ARRIVALS not in at.states:
            return set()
        self._arrivals_kept_s = now_s
        return {ARRIVALS}

    def _activate(self, active: Prepared) -> None:
        """New weights: every monitor begins anew by its own rule; at the first start the bundle's levels may hold.

        What waits for a full batch was served by the weights before and is judged no more, even if they come back.
        """
        before = self._standing
        cursor = self._buffer[-1].arrival if self._buffer else before.place.cursor
        place = replace(
            before.place,
            weights=active.weights,
            open_flag=False,
            flag=None,
            cursor=cursor,
            overlay="",
            overlays=(),
            overlaid_at=before.batches.get(LABEL_FREE, 0),
            asked=asked(before.place.flag, self._waiting(active)) or self._compared(active),
        )
        rules = self._rules_of(active)
        states = _rebaselined(rules, before, active.weights, goes_on=rules is self.rules)
        at = Standing(
            place,
            activated(before.policy),
            states,
            batches=before.batches,
            facts=LabelFacts(),
            season=None if rules.season is None else SeasonState.start(rules.season),
            touched=frozenset([*states, SEASON]),
        )
        with self._database.transaction():
            self._table.save(at, rules)
        self._judging.rules, self._standing, self._buffer = rules, at.settled(), []
        self._served = ServedViews(rules)

    def _waiting(self, active: Prepared) -> Asked | None:
        """What the weights before have not answered yet, where it says something of these."""
        waiting = self._standing.place.asked
        answers_no_flag = waiting is not None and waiting.most is not None
        return None if answers_no_flag and active.bundle != self.rules.bundle else waiting

    def _compared(self, active: Prepared) -> Asked | None:
        """What weights of the same bundle must not do to the losses; those of another may mean something else."""
        if active.bundle != self.rules.bundle:
            return None
        return before_activation(self.rules, self._store, self._standing)

    def _overlay(self, active: Prepared) -> None:
        """Something else lies on the same release; what waits for a full batch it has not served."""
        at = with_overlay(self.rules, self._standing, active)
        with self._database.transaction():
            self._table.save(at, self.rules)
        self._standing = at.settled()
        self._buffer = [row for row in self._buffer if at.place.judges(row.weights)]
        self._served = ServedViews(self.rules)

    def _rules_of(self, active: Prepared) -> WatchRules:
        if self._adopt is None or active.bundle == self.rules.bundle:
            return self.rules
        try:
            return self._adopt(active)
        except (ConfigError, DataError) as error:
            _log.error("monitors_of_new_bundle_unusable", problem=str(error), bundle=active.bundle)
            return self.rules


def _rebaselined(rules: WatchRules, before: Standing, weights: str, *, goes_on: bool) -> dict[str, MonitorState]:
    """States on new weights; those of other rules begin anew."""
    states: dict[str, MonitorState] = {}
    for one in rules.every:
        state = before.states[one.monitor.name] if goes_on else one.monitor.start()
        begins = before.place.weights or (rules.learns and one.monitor.role in (Role.LABELLED, Role.LABEL_FREE))
        states[one.monitor.name] = rules.rebaselined(one, state, weights) if begins else state
    return states
