"""Batches judged: the monitor's steps, the policy's ruling after each, and the flag that may follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from edge_agent.drift.policy.severity import LOSS, Severity, kind_of_shift, mattering, severity
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Role, Ruling, judge
from edge_agent.drift.rises import clip_losses
from edge_agent.drift.sequential.params import LossLevelParams
from edge_agent.drift.sequential.state import LossLevelState
from edge_agent.errors import DataError
from edge_agent.runtime.watch_answer import (
    COMPARED_ROWS,
    RENEWED_AT_MOST,
    Asked,
    no_worse_than,
    no_worse_than_usual,
    unanswered,
    with_losses,
)
from edge_agent.runtime.watch_batches import Began
from edge_agent.runtime.watch_flag import Context, Drifted, flag_id, labelled_drifted, made_flag, role_findings
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import SEASON, Place, Standing
from edge_agent.samples.record import LabelledRow, Part
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
        at: the standing after it; ``at.events[-1]`` is the flag, if one is raised. The monitor's state in it is that
            after all batches that were judged together.
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
        self,
        at: Standing,
        monitor: Monitor,
        seen: Observed,
        began: Callable[[int | None, int], Began],
        active: Prepared,
    ) -> Standing:
        """After whole batches of samples as they were served, one after the other.

        One that cannot be judged costs itself alone.

        Args:
            began: where so many of the latest samples began, of a batch that so many others follow.
        """
        size = monitor.batch_size
        try:
            stepped = monitor.step_many(at.states[monitor.name], seen)
        except DataError as error:
            if len(seen) == size:
                return self._not_judged(at, monitor, error, seen.ids[0])
            return self._one_by_one(at, monitor, seen, began, active)
        at, count = at.with_state(monitor.name, stepped[0]), len(stepped[1])
        for place, finding in enumerate(stepped[1]):
            at, ruling = self._ruled(at, monitor, finding)
            batch = seen.part(place * size, (place + 1) * size)
            if ruling.flags:
                first = began(finding.began_samples, count - 1 - place)
                numbers = {"batches_seen": float(at.batches[monitor.name]), "last_time_s": float(batch.times_s[-1])}
                drifted = Drifted(first.id, first.time_s, [first.id, *batch.ids], numbers)
                at = self._flagged(at, monitor, finding, drifted, active)
            self.told(Judged(monitor.name, batch.ids, batch.times_s, None, finding, ruling, at))
        return at

    def _one_by_one(
        self,
        at: Standing,
        monitor: Monitor,
        seen: Observed,
        began: Callable[[int | None, int], Began],
        active: Prepared,
    ) -> Standing:
        size = monitor.batch_size
        for start in range(0, len(seen), size):
            others = (len(seen) - start) // size - 1
            whence = partial(_earlier, began, others)
            at = self.served(at, monitor, seen.part(start, start + size), whence, active)
        return at

    def labelled(self, at: Standing, rows: list[LabelledRow], active: Prepared) -> Standing:
        """After whole batches of samples in the order in which their labels came, or after one that is not whole.

        One that cannot be judged costs itself alone.
        """
        monitor, size = self.rules.labelled.monitor, self.rules.labelled.monitor.batch_size
        try:
            losses = self._losses(rows)
            times_s = np.array([row.time_s for row in rows], np.float64)
            shown = self._shown(at, rows, losses, times_s)
            if len(rows) < size:
                state, finding = monitor.step(at.states[monitor.name], shown)
                findings = [finding]
            elif len(rows) > size and self.rules.season is not None:
                return self._one_after_other(at, rows, active)  # each one's losses say what is usual for the next
            else:
                state, findings = monitor.step_many(at.states[monitor.name], shown)
        except DataError as error:
            if len(rows) > size:
                return self._one_after_other(at, rows, active)
            return self._not_judged(self._judged_upto(at, rows), monitor, error, rows[0].id)
        at = at.with_state(monitor.name, state)
        for place, finding in enumerate(findings):
            some = slice(place * size, (place + 1) * size)
            at = self._after_labelled(at, rows[some], shown.part(some.start, some.stop), losses[some], finding, active)
        return self._with_season(at, losses, times_s)

    def _one_after_other(self, at: Standing, rows: list[LabelledRow], active: Prepared) -> Standing:
        size = self.rules.labelled.monitor.batch_size
        for start in range(0, len(rows), size):
            at = self.labelled(at, rows[start : start + size], active)
        return at

    def _after_labelled(
        self,
        at: Standing,
        batch: list[LabelledRow],
        shown: Labelled,
        losses: NDArray[np.float64],
        finding: Finding,
        active: Prepared,
    ) -> Standing:
        monitor = self.rules.labelled.monitor
        at, finding = self._answered(self._judged_upto(at, batch), shown, finding)
        at, ruling = self._ruled(at, monitor, finding)
        if ruling.flags:
            drifted = self._drifted(at, monitor, finding, batch, losses)
            at = self._flagged(at, monitor, finding, drifted, active)
        self.told(Judged(monitor.name, shown.ids, shown.times_s, losses, finding, ruling, at))
        return at

    def _answered(self, at: Standing, shown: Labelled, finding: Finding) -> tuple[Standing, Finding]:
        """Whether the weights have answered the flag that stood at their activation, once that can be told.

        Their level is what is usual from now on, so that a drift which they have not repaired would not be seen again,
        nor, where no flag stood, that they are worse than those before.
        """
        monitor, waiting, warm_up = self.rules.labelled.monitor, at.place.asked, self._warm_up_samples
        if waiting is None or not warm_up:  # the published rule has none, and flags what it says alone
            return at, finding
        waiting = with_losses(waiting, shown, getattr(monitor.params, "clip", None))
        if waiting.samples < warm_up:
            return replace(at, place=replace(at.place, asked=waiting)), finding
        still = unanswered(waiting, finding)
        renewed = 0 if still is None else at.place.renewed + 1
        at = replace(at, place=replace(at.place, asked=None, renewed=renewed))
        return at, finding if still is None or renewed > RENEWED_AT_MOST else still

    def before_activation(self, at: Standing) -> Asked | None:
        """What new weights are to be compared with that answer no flag; None: too little is known to compare.

        The latest losses by the weights before; of weights that have told too few, those usual to the monitor then:
        a gateway that has just started, and gets its fleet's release at once, would never be judged by the reference.
        Where a season is learned anew with the weights nothing is compared.

        Args:
            at: the standing before the activation.

        Cost: reads twice ``COMPARED_ROWS`` labelled rows.
        """
        if not at.place.weights or not self._warm_up_samples or self.rules.season is not None:
            return None
        rows = [row for row in self._latest_labelled(at.place, COMPARED_ROWS) if row.part is not Part.UNFIT]
        try:
            losses = self._losses(rows) if rows else np.zeros(0)
        except DataError as error:
            _log.warning("new_weights_not_compared", problem=str(error))
            return None
        guess = self.rules.worst_loss
        return no_worse_than(losses, self._warm_up_samples, guess=guess) or self._no_worse_than_usual(at, guess)

    def _no_worse_than_usual(self, at: Standing, guess: float | None) -> Asked | None:
        monitor = self.rules.labelled.monitor
        state, params = at.states[monitor.name], monitor.params
        if not isinstance(state, LossLevelState) or not isinstance(params, LossLevelParams) or state.warmup_left:
            return None
        return no_worse_than_usual(state.distribution, self._warm_up_samples, inflation=params.inflation, guess=guess)

    @property
    def _warm_up_samples(self) -> int:
        monitor = self.rules.labelled.monitor
        return int(getattr(monitor.params, "warmup_batches", 0)) * monitor.batch_size

    def _judged_upto(self, at: Standing, batch: list[LabelledRow]) -> Standing:
        facts = (
            at.facts if at.facts.judged and not at.facts.rows_since else replace(at.facts, rows_since=0, judged=True)
        )
        return replace(at, place=replace(at.place, cursor=batch[-1].arrival), facts=facts)

    def _shown(
        self, at: Standing, rows: list[LabelledRow], losses: NDArray[np.float64], times_s: NDArray[np.float64]
    ) -> Labelled:
        unknown = np.full(len(rows), np.nan)
        return Labelled([row.id for row in rows], times_s, self._without_season(at, losses, times_s), unknown)

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
            shown = self._shown(at, waiting, self._losses(waiting), times_s)
            _, finding = monitor.step(at.states[monitor.name], shown)
        except DataError:
            return at  # told once the batch is full
        return self.labelled(at, waiting, active) if self._mattering(monitor, finding).alarm else at

    def _mattering(self, monitor: Monitor, finding: Finding) -> Finding:
        """Of the monitor that judges the level, a rise that is none to speak of only warns."""
        return mattering(finding, self.rules.worst_loss) if monitor.any_size else finding

    def _ruled(self, at: Standing, monitor: Monitor, finding: Finding) -> tuple[Standing, Ruling]:
        """The standing after a batch that a monitor, whose state it has already, has judged; and the ruling."""
        self.problems.pop(monitor.name, None)
        finding = self._mattering(monitor, finding)
        good_for = standing(self.rules.policy, at.facts)
        policy, ruling = judge(self.rules.policy, at.policy, monitor.role or Role.ACCURACY, finding, labels=good_for)
        following = replace(
            at,
            policy=policy,
            findings={**at.findings, monitor.name: finding},
            batches={**at.batches, monitor.name: at.batches.get(monitor.name, 0) + 1},
        )
        return following, ruling

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
            shift="activation" if finding.shift == "activation" else kind_of_shift(at.policy, latest),
            facts=at.facts,
            accuracy=accuracy_now(self.rules, at),
            trainable=self.store.trainable_count(drifted.first),
        )
        identity = flag_id(self.gateway, monitor.name, at.place.epoch, at.policy.flags)
        event = made_flag(identity, at.policy.flags, monitor, finding, drifted, context, active)
        place = replace(at.place, drifted_from=drifted.first, open_flag=True, flag=event.model_dump_json(), asked=None)
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
        return {f"loss[{name}]": float(losses[named == name].mean()) for name in sorted(set(named.tolist()))}

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


def _earlier(began: Callable[[int | None, int], Began], others: int, samples: int | None, later: int) -> Began:
    return began(samples, later + others)


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
