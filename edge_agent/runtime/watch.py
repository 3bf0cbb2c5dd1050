"""The drift monitors at work: samples and labels in, one verdict and its flags out, all in one transaction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled, Observed
from edge_agent.drift.policy.catalogue import ACCURACY, Monitor
from edge_agent.drift.policy.labels import LabelFacts, standing
from edge_agent.drift.policy.season import SeasonState, learn, usual
from edge_agent.drift.policy.severity import kind_of_shift, severity
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import activated, judge
from edge_agent.drift.rises import clip_losses
from edge_agent.errors import ConfigError, DataError, StorageError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.runtime.watch_batches import ServedBatches, observed, of_task
from edge_agent.runtime.watch_flag import (
    Context,
    Drifted,
    flag_id,
    labelled_drifted,
    made_flag,
    role_findings,
)
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import SEASON, Standing, StandingTable
from edge_agent.samples.record import LabelledRow, Predicted, SampleBatch
from edge_agent.samples.scoring import row_losses
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared
from edge_agent.wire.messages import FlagEvent

CATCH_UP_ROWS = 1000
LOOKED_BACK_ROWS = 4000
"""Labelled rows that are read again to say where a drift began that a monitor dates back."""
_log = structlog.get_logger(__name__)

ServedPart = tuple[SampleBatch, Predicted]


class DriftWatch:
    """Steps every monitor over batches of its size, by the active weights' samples, and the policy after each.

    Labelled samples are judged in the order in which their labels came, each once: a restart, or a disk that was full,
    takes up where the last commit stood. Served samples are judged as they are recorded; those of a batch that was not
    full at a kill are not judged. A flag that the disk refused is raised when the disk is back.

    Args:
        database: holds the standing; the outbox must use the same one.
        rules: of the bundle that serves at first. A state that was made with other constants is not gone on with: its
            monitor begins as after an activation.
        adopt: gives the rules of another bundle, once that serves; None: those at hand stay.
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
    ) -> None:
        self._database = database
        self._table = StandingTable(database)
        self._outbox = outbox
        self._store = store
        self._gateway = gateway
        self._adopt = adopt
        self._rules = rules
        self._buffer: list[LabelledRow] = []
        self._served = _batches(rules)
        self._behind = True
        self._said_to: str | None = None
        self.unjudged_batches = 0
        self.problems: dict[str, str] = {}
        self._standing = self._table.load(rules)
        if self._standing.touched:
            self._settle(self._standing)

    @property
    def rules(self) -> WatchRules:
        """The rules in force."""
        return self._rules

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
    def behind(self) -> bool:
        """Whether the store may hold rows that are still to be judged: at the start, and after a failure."""
        return self._behind

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
        return {self._rules.labelled.monitor.name: len(self._buffer)} | {
            name: len(batches) for name, batches in self._served.items()
        }

    @property
    def accuracy(self) -> AccuracyEstimate | None:
        """The latest estimate; None: nothing estimates it, or nothing yet."""
        return _accuracy(self._rules, self._standing)

    def consume(self, rows: list[LabelledRow], active: Prepared, served: Sequence[ServedPart] = ()) -> int:
        """Judge what was served and what labels have come; returns how many flags were raised.

        Samples served by other weights than the active ones are passed over. Samples that do not fill a batch wait.
        The first call, and the one after a failure, reads labelled ones from the store from the cursor on.

        Args:
            rows: as the store gave them; it must hold them already.
            served: since the call before, in their order.

        Raises:
            StorageError: what was not judged will be by a later call.
        """
        try:
            if active.weights != self._standing.place.weights:
                self._activate(active)
            at = self._after_served(self._standing, served, active)
            flags = 0
            for page in self._unjudged() if self._behind else [rows]:
                flags += self._settle(self._after_labelled(at, page, active))
                at = self._standing
            if at is not self._standing:
                flags += self._settle(at)
        except StorageError:
            self._behind, self._buffer = True, []
            for batches in self._served.values():
                batches.rewind()
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

    def _after_served(self, at: Standing, served: Sequence[ServedPart], active: Prepared) -> Standing:
        rows = 0
        inputs = [spec.name for spec in self._rules.manifest.inputs]
        first_task = active.tasks[0] if active.tasks else None
        for batch, made in served:
            if made.weights != active.weights:
                continue
            rows += len(batch.ids)
            if self._served:
                piece = of_task(observed(batch, made, inputs), batch.tasks, first_task)
                for batches in self._served.values():
                    batches.add(piece)
        if not rows:
            return at
        at = replace(at, facts=replace(at.facts, rows_since=at.facts.rows_since + rows))
        for one in self._rules.served:
            while (full := self._served[one.monitor.name].take()) is not None:
                at = self._judge(at, one.monitor, full, active)
        return at

    def _after_labelled(self, at: Standing, rows: list[LabelledRow], active: Prepared) -> Standing:
        """All batches that are full now."""
        self._buffer += [
            row for row in rows if row.weights == active.weights and row.arrival > self._standing.place.cursor
        ]
        monitor = self._rules.labelled.monitor
        start = 0
        for start in range(0, len(self._buffer) - monitor.batch_size + 1, monitor.batch_size):
            batch = self._buffer[start : start + monitor.batch_size]
            facts = replace(at.facts, rows_since=0, judged=True)
            at = replace(at, place=replace(at.place, cursor=batch[-1].arrival), facts=facts)
            try:
                losses = row_losses(self._rules.manifest.loss, batch, delta=self._rules.manifest.huber_delta)
            except DataError as error:
                at = self._not_judged(at, monitor, error, batch[0].id)
                continue
            at = self._judge_losses(at, monitor, batch, losses, active)
        return at

    def _judge_losses(
        self, at: Standing, monitor: Monitor, batch: list[LabelledRow], losses: NDArray[np.float64], active: Prepared
    ) -> Standing:
        times_s = np.array([row.time_s for row in batch], np.float64)
        season = self._rules.season
        judged = losses
        if season is not None and at.season is not None:
            judged = np.maximum(losses - usual(season, at.season, times_s), 0.0)
        shown = Labelled([row.id for row in batch], times_s, judged, np.full(len(batch), np.nan))
        at = self._judge(at, monitor, shown, active, rows=batch)
        if season is not None and at.season is not None and at.policy.verdict is Verdict.NONE:
            at = replace(at, season=learn(season, at.season, times_s, losses), touched=at.touched | {SEASON})
        return at

    def _judge(
        self,
        at: Standing,
        monitor: Monitor,
        batch: Labelled | Observed,
        active: Prepared,
        rows: list[LabelledRow] | None = None,
    ) -> Standing:
        try:
            state, finding = monitor.step(at.states[monitor.name], batch)
        except DataError as error:
            return self._not_judged(at, monitor, error, batch.ids[0])
        self.problems.pop(monitor.name, None)
        good_for = standing(self._rules.policy, at.facts)
        policy, ruling = judge(self._rules.policy, at.policy, monitor.role, finding, labels=good_for)
        following = replace(
            at.with_state(monitor.name, state),
            policy=policy,
            findings={**at.findings, monitor.name: finding},
            batches={**at.batches, monitor.name: at.batches.get(monitor.name, 0) + 1},
        )
        if not ruling.flags:
            return following
        drifted = (
            self._drifted_served(monitor, finding, batch, following)
            if rows is None
            else self._drifted_labelled(monitor, finding, rows, following, active)
        )
        return self._flagged(following, monitor, finding, drifted, active)

    def _not_judged(self, at: Standing, monitor: Monitor, error: DataError, first: str) -> Standing:
        self.unjudged_batches += 1
        self.problems[monitor.name] = str(error)
        _log.error("batch_not_judged", monitor=monitor.name, problem=str(error), first=first)
        return at.with_state(monitor.name, at.states[monitor.name])

    def _flagged(
        self, at: Standing, monitor: Monitor, finding: Finding, drifted: Drifted, active: Prepared
    ) -> Standing:
        findings = dict(at.findings)
        latest = role_findings(findings, [one.monitor for one in self._rules.every])
        accuracy = _accuracy(self._rules, at)
        context = Context(
            findings=findings,
            severity=severity(
                at.policy,
                latest,
                worst_loss=self._rules.worst_loss,
                classes=self._rules.manifest.classes,
                accuracy=accuracy,
            ),
            shift=kind_of_shift(at.policy, latest),
            facts=at.facts,
            accuracy=accuracy,
            trainable=self._store.trainable_count(drifted.first),
        )
        identity = flag_id(self._gateway, monitor.name, at.place.epoch, at.policy.flags)
        event = made_flag(identity, at.policy.flags, monitor, finding, drifted, context, active)
        place = replace(at.place, drifted_from=drifted.first, open_flag=True, flag=event.model_dump_json())
        return replace(at, place=place, events=(*at.events, event))

    def _drifted_labelled(
        self, monitor: Monitor, finding: Finding, batch: list[LabelledRow], at: Standing, active: Prepared
    ) -> Drifted:
        rows = batch
        began = finding.began_samples
        if began is not None and began > len(batch):
            rows = self._latest_labelled(at.place.cursor, began, active) or batch
            began = min(began, len(rows))
        numbers = {"batches_seen": float(at.batches[monitor.name])} | self._loss_numbers(monitor, finding, batch)
        return labelled_drifted(rows, began, numbers)

    def _latest_labelled(self, cursor: int, count: int, active: Prepared) -> list[LabelledRow]:
        """The last ``count`` labelled rows of these weights up to the cursor, as far back as is looked."""
        reach = min(2 * count, LOOKED_BACK_ROWS)
        rows = self._store.labelled_since(max(0, cursor - reach), reach)
        return [row for row in rows if row.weights == active.weights and row.arrival <= cursor][-count:]

    def _loss_numbers(self, monitor: Monitor, finding: Finding, batch: list[LabelledRow]) -> dict[str, float]:
        """The losses behind a flag: of the batch, before the drift, and of each task where there are several."""
        clip = getattr(monitor.params, "clip", None)
        manifest = self._rules.manifest
        losses = clip_losses(row_losses(manifest.loss, batch, delta=manifest.huber_delta), clip)
        numbers = {"batch_loss": float(losses.mean())}
        numbers["loss_before"] = next((one.before for one in finding.attributions if one.name == "loss"), 0.0)
        tasks = [row.task or "" for row in batch]
        for task in sorted(set(tasks)) if len(manifest.tasks) > 1 else ():
            mine = np.array([one == task for one in tasks])
            numbers[f"loss[{task or manifest.tasks[0].name}]"] = float(losses[mine].mean())
        return numbers

    def _drifted_served(self, monitor: Monitor, finding: Finding, batch: Labelled | Observed, at: Standing) -> Drifted:
        began = self._served[monitor.name].began(finding.began_samples)
        numbers = {"batches_seen": float(at.batches[monitor.name]), "last_time_s": float(batch.times_s[-1])}
        return Drifted(began.id, began.time_s, [began.id, *batch.ids], numbers)

    def _settle(self, at: Standing) -> int:
        """Commit; nothing is written where nothing was judged."""
        if at.touched:
            with self._database.transaction():
                self._table.save(at, self._rules)
                for event in at.events:
                    self._outbox.put(event, Priority.FLAG)
            self._buffer = [row for row in self._buffer if row.arrival > at.place.cursor]
            for batches in self._served.values():
                batches.settled()
        self._standing = at.settled()
        for event in at.events:
            _log.warning(
                "drift_flagged",
                monitor=event.monitor,
                statistic=event.statistic,
                threshold=event.threshold,
                flag=event.flag_id,
            )
        return len(at.events)

    def _activate(self, active: Prepared) -> None:
        """New weights: every monitor begins anew by its own rule; the first start keeps fresh states.

        What waits for a full batch was served by the weights before and is judged no more, even if they come back.
        """
        before = self._standing
        cursor = self._buffer[-1].arrival if self._buffer else before.place.cursor
        place = replace(before.place, weights=active.weights, open_flag=False, flag=None, cursor=cursor)
        rules = self._rules_of(active)
        states = {}
        for one in rules.every:
            state = before.states.get(one.monitor.name) if rules is self._rules else None
            state = one.monitor.start() if state is None else state
            states[one.monitor.name] = one.monitor.rebaseline(state) if before.place.weights else state
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
        if rules is not self._rules:
            self._served = _batches(rules)
        for batches in self._served.values():
            batches.clear()
        self._rules, self._standing, self._buffer = rules, at.settled(), []

    def _rules_of(self, active: Prepared) -> WatchRules:
        if self._adopt is None or active.bundle == self._rules.bundle:
            return self._rules
        try:
            return self._adopt(active)
        except (ConfigError, DataError) as error:
            _log.error("monitors_of_new_bundle_unusable", problem=str(error), bundle=active.bundle)
            return replace(self._rules, bundle=active.bundle)


def _batches(rules: WatchRules) -> dict[str, ServedBatches]:
    return {one.monitor.name: ServedBatches(one.monitor.batch_size) for one in rules.served}


def _accuracy(rules: WatchRules, at: Standing) -> AccuracyEstimate | None:
    for one in rules.served:
        if one.monitor.name == ACCURACY and ACCURACY in at.states:
            latest: Any = one.monitor.module.latest(one.monitor.params, at.states[ACCURACY])
            return latest if isinstance(latest, AccuracyEstimate) else None
    return None
