"""One batch judged: the monitor's step, the policy's ruling, and the flag that may follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled, Observed
from edge_agent.drift.policy.catalogue import ACCURACY, Monitor
from edge_agent.drift.policy.labels import standing
from edge_agent.drift.policy.season import in_force, is_known, learn, usual
from edge_agent.drift.policy.severity import LOSS, Severity, kind_of_shift, severity
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Role, Ruling, judge
from edge_agent.drift.rises import clip_losses
from edge_agent.errors import DataError
from edge_agent.runtime.watch_batches import Began
from edge_agent.runtime.watch_flag import Context, Drifted, flag_id, labelled_drifted, made_flag, role_findings
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import SEASON, Place, Standing
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.scoring import row_losses
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared

LOOKED_BACK_ROWS = 4000
"""Labelled rows that are read again to say where a drift began that a monitor dates back."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch as it was judged.

    Attributes:
        monitor: its name.
        ids, times_s: of the batch's samples.
        losses: of a batch of labelled samples; None: of one without labels.
        ruling: verdict, what the batch meant, and whether a flag is raised.
        at: the standing after it; ``at.events[-1]`` is the flag, if one is raised.
    """

    monitor: str
    ids: Sequence[str]
    times_s: NDArray[np.float64]
    losses: NDArray[np.float64] | None
    finding: Finding
    ruling: Ruling
    at: Standing


@dataclass
class Judging:
    """Judges batches by the rules in force; keeps nothing but what could not be judged.

    Attributes:
        told: every judged batch.
        unjudged: batches that could not be judged since the start.
        problems: why the latest batch of a monitor could not be judged, by its name.
    """

    gateway: str
    store: SampleStore
    rules: WatchRules
    told: Callable[[Judged], None] = lambda judged: None
    unjudged: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def served(
        self, at: Standing, monitor: Monitor, batch: Observed, began: Callable[[int | None], Began], active: Prepared
    ) -> Standing:
        """After a batch of samples as they were served.

        Args:
            began: where so many of the latest samples began.
        """
        found = self._stepped(at, monitor, batch)
        if isinstance(found, Standing):
            return found
        following, finding, ruling = found
        if ruling.flags:
            first = began(finding.began_samples)
            numbers = {"batches_seen": float(following.batches[monitor.name]), "last_time_s": float(batch.times_s[-1])}
            drifted = Drifted(first.id, first.time_s, [first.id, *batch.ids], numbers)
            following = self._flagged(following, monitor, finding, drifted, active)
        self.told(Judged(monitor.name, batch.ids, batch.times_s, None, finding, ruling, following))
        return following

    def labelled(self, at: Standing, batch: list[LabelledRow], active: Prepared) -> Standing:
        """After a batch of samples in the order in which their labels came."""
        monitor = self.rules.labelled.monitor
        facts = replace(at.facts, rows_since=0, judged=True)
        at = replace(at, place=replace(at.place, cursor=batch[-1].arrival), facts=facts)
        try:
            losses = self._losses(batch)
        except DataError as error:
            return self._not_judged(at, monitor, error, batch[0].id)
        times_s = np.array([row.time_s for row in batch], np.float64)
        unknown = np.full(len(batch), np.nan)
        shown = Labelled([row.id for row in batch], times_s, self._without_season(at, losses, times_s), unknown)
        found = self._stepped(at, monitor, shown)
        if isinstance(found, Standing):
            return found
        following, finding, ruling = found
        if ruling.flags:
            drifted = self._drifted(following, monitor, finding, batch, losses)
            following = self._flagged(following, monitor, finding, drifted, active)
        self.told(Judged(monitor.name, shown.ids, times_s, losses, finding, ruling, following))
        return self._with_season(following, losses, times_s)

    def early(self, at: Standing, waiting: list[LabelledRow], active: Prepared) -> Standing:
        """After samples that do not fill a batch, where the monitor judges each as it comes and alarms by them.

        Else the standing as it was, and they wait: nothing need be kept of a step that can be done again.
        """
        monitor = self.rules.labelled.monitor
        latest = at.findings.get(monitor.name)
        if not monitor.any_size or (latest is not None and latest.alarm):
            return at
        times_s = np.array([row.time_s for row in waiting], np.float64)
        try:
            losses = self._without_season(at, self._losses(waiting), times_s)
            shown = Labelled([row.id for row in waiting], times_s, losses, np.full(len(waiting), np.nan))
            _, finding = monitor.step(at.states[monitor.name], shown)
        except DataError:
            return at  # told once the batch is full
        return self.labelled(at, waiting, active) if finding.alarm else at

    def _stepped(
        self, at: Standing, monitor: Monitor, batch: Labelled | Observed
    ) -> Standing | tuple[Standing, Finding, Ruling]:
        """The standing after the batch, the finding, and the ruling; the standing alone: not judged."""
        try:
            state, finding = monitor.step(at.states[monitor.name], batch)
        except DataError as error:
            return self._not_judged(at, monitor, error, batch.ids[0])
        self.problems.pop(monitor.name, None)
        good_for = standing(self.rules.policy, at.facts)
        policy, ruling = judge(self.rules.policy, at.policy, monitor.role or Role.ACCURACY, finding, labels=good_for)
        following = replace(
            at.with_state(monitor.name, state),
            policy=policy,
            findings={**at.findings, monitor.name: finding},
            batches={**at.batches, monitor.name: at.batches.get(monitor.name, 0) + 1},
        )
        return following, finding, ruling

    def _not_judged(self, at: Standing, monitor: Monitor, error: DataError, first: str) -> Standing:
        self.unjudged += 1
        self.problems[monitor.name] = str(error)
        _log.error("batch_not_judged", monitor=monitor.name, problem=str(error), first=first)
        return at.with_state(monitor.name, at.states[monitor.name])

    def _flagged(
        self, at: Standing, monitor: Monitor, finding: Finding, drifted: Drifted, active: Prepared
    ) -> Standing:
        latest = role_findings(at.findings, self.rules.monitors)
        context = Context(
            findings=at.findings,
            severity=severity_now(self.rules, at),
            shift=kind_of_shift(at.policy, latest),
            facts=at.facts,
            accuracy=accuracy_now(self.rules, at),
            trainable=self.store.trainable_count(drifted.first),
        )
        identity = flag_id(self.gateway, monitor.name, at.place.epoch, at.policy.flags)
        event = made_flag(identity, at.policy.flags, monitor, finding, drifted, context, active)
        place = replace(at.place, drifted_from=drifted.first, open_flag=True, flag=event.model_dump_json())
        return replace(at, place=place, events=(*at.events, event))

    def _drifted(
        self,
        at: Standing,
        monitor: Monitor,
        finding: Finding,
        batch: list[LabelledRow],
        losses: NDArray[np.float64],
    ) -> Drifted:
        rows, began = batch, finding.began_samples
        if began is not None and began > len(batch):
            rows = self._latest_labelled(at.place, began) or batch
            began = min(began, len(rows))
        clipped = clip_losses(losses, getattr(monitor.params, "clip", None))
        before = next((one.before for one in finding.attributions if one.name == LOSS), 0.0)
        numbers = {
            "batches_seen": float(at.batches[monitor.name]),
            "batch_loss": float(clipped.mean()),
            "loss_before": before,
        }
        return labelled_drifted(rows, began, numbers | self._losses_of_tasks(batch, clipped))

    def _losses_of_tasks(self, batch: list[LabelledRow], losses: NDArray[np.float64]) -> dict[str, float]:
        """The batch's mean loss of each task, where the bundle has several: which of them went wrong."""
        tasks = self.rules.manifest.tasks
        if len(tasks) < 2:
            return {}
        named = np.array([row.task or tasks[0].name for row in batch])
        return {f"loss[{name}]": float(losses[named == name].mean()) for name in np.unique(named).tolist()}

    def _latest_labelled(self, place: Place, count: int) -> list[LabelledRow]:
        """The last ``count`` labelled rows of these weights up to the cursor, as far back as is looked."""
        reach = min(2 * count, LOOKED_BACK_ROWS)
        rows = self.store.labelled_since(max(0, place.cursor - reach), reach)
        return [row for row in rows if place.judges(row.weights) and row.arrival <= place.cursor][-count:]

    def _losses(self, batch: list[LabelledRow]) -> NDArray[np.float64]:
        return row_losses(self.rules.manifest.loss, batch, delta=self.rules.manifest.huber_delta)

    def _without_season(
        self, at: Standing, losses: NDArray[np.float64], times_s: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if self.rules.season is None or at.season is None:
            return losses
        return np.maximum(losses - usual(self.rules.season, at.season, times_s), 0.0)

    def _with_season(self, at: Standing, losses: NDArray[np.float64], times_s: NDArray[np.float64]) -> Standing:
        if self.rules.season is None or at.season is None:
            return at
        if at.policy.verdict is not Verdict.NONE and is_known(self.rules.season, at.season, times_s):
            return at  # or the season would take the drift for its own
        season = learn(self.rules.season, at.season, times_s, losses)
        after = replace(at, season=season, touched=at.touched | {SEASON})
        if in_force(self.rules.season, season) == in_force(self.rules.season, at.season):
            return after
        monitor = self.rules.labelled.monitor  # losses are judged from another level from now on: it begins anew
        return after.with_state(monitor.name, monitor.rebaseline(at.states[monitor.name]))


def severity_now(rules: WatchRules, at: Standing) -> Severity:
    """How bad it is, by the latest findings."""
    return severity(
        at.policy,
        role_findings(at.findings, rules.monitors),
        worst_loss=rules.worst_loss,
        classes=rules.manifest.classes,
        accuracy=accuracy_now(rules, at),
    )


def accuracy_now(rules: WatchRules, at: Standing) -> AccuracyEstimate | None:
    """The latest estimate; None: nothing estimates it, or nothing yet."""
    for one in rules.served:
        if one.monitor.name == ACCURACY:
            latest: Any = one.monitor.module.latest(one.monitor.params, at.states[ACCURACY])
            return latest if isinstance(latest, AccuracyEstimate) else None
    return None
