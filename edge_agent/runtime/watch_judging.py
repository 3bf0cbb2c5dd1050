"""Batches judged: the monitor's steps, the policy's ruling after each, and the flag that may follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled, Observed
from edge_agent.drift.policy.catalogue import Monitor
from edge_agent.drift.policy.labels import standing
from edge_agent.drift.policy.season import in_force, is_known, learn, usual
from edge_agent.drift.policy.severity import LOSS, kind_of_shift, mattering
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Labels, PolicyParams, PolicyState, Role, Ruling, judge
from edge_agent.drift.rises import clip_losses
from edge_agent.errors import DataError
from edge_agent.runtime.watch_answered import answered
from edge_agent.runtime.watch_batches import Began
from edge_agent.runtime.watch_flag import Context, Drifted, flag_id, labelled_drifted, made_flag, role_findings
from edge_agent.runtime.watch_losses import latest_labelled, losses_of
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_severity import accuracy_now, severity_now
from edge_agent.runtime.watch_standing import SEASON, Standing
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Prepared

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
        told: every judged batch; None: nobody is.
        unjudged: batches that could not be judged since the start.
        problems: why the latest batch of a monitor could not be judged, by its name.
    """

    gateway: str
    store: SampleStore
    rules: WatchRules
    told: Callable[[Judged], None] | None = None
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
            stepped = monitor.judge_many(at.states[monitor.name], seen)
        except DataError as error:
            if len(seen) == size:
                return self._not_judged(at, monitor, error, seen.ids[0])
            return self._one_by_one(at, monitor, seen, began, active)
        at = at.with_state(monitor.name, stepped.state)
        ruled, last = self._ruling(at, monitor), len(stepped.findings) - 1
        for place, finding in enumerate(stepped.findings):
            ruling = ruled.after(finding)
            if not (ruling.flags or place == last or self.told):
                continue  # nobody will ask for more than what the policy has made of it
            finding = stepped.explained(place)
            at = ruled.standing(at, finding)
            batch = seen.part(place * size, (place + 1) * size)
            if ruling.flags:
                first = began(finding.began_samples, last - place)
                numbers = {"batches_seen": float(at.batches[monitor.name]), "last_time_s": float(batch.times_s[-1])}
                drifted = Drifted(first.id, first.time_s, [first.id, *batch.ids], numbers)
                at = self._flagged(at, monitor, finding, drifted, active)
            self._tell(monitor, batch, None, finding, ruling, at)
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
            losses = losses_of(self.rules, rows)
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
        at = self._after_labelled(at.with_state(monitor.name, state), rows, shown, losses, findings, active)
        return self._with_season(at, losses, times_s)

    def _one_after_other(self, at: Standing, rows: list[LabelledRow], active: Prepared) -> Standing:
        size = self.rules.labelled.monitor.batch_size
        for start in range(0, len(rows), size):
            at = self.labelled(at, rows[start : start + size], active)
        return at

    def _after_labelled(
        self,
        at: Standing,
        rows: list[LabelledRow],
        shown: Labelled,
        losses: NDArray[np.float64],
        findings: Sequence[Finding],
        active: Prepared,
    ) -> Standing:
        """After batches, whose findings these are, in turn; where nothing is asked of any, to the policy alone."""
        monitor, size, last = self.rules.labelled.monitor, self.rules.labelled.monitor.batch_size, len(findings) - 1
        at = self._judged_upto(at, rows[:size])
        ruled = self._ruling(at, monitor)
        for place, said in enumerate(findings):
            some = slice(place * size, (place + 1) * size)
            batch, finding = rows[some], said
            if at.place.asked is not None:
                seen = shown.part(some.start, some.stop)
                at, finding = answered(self.rules, self._judged_upto(at, batch), seen, said)
            finding = self._mattering(monitor, finding)
            ruling = ruled.after(finding)
            if not (ruling.flags or place == last or self.told):
                continue
            at = ruled.standing(self._judged_upto(at, batch), finding)
            if ruling.flags:
                drifted = self._drifted(at, monitor, finding, batch, losses[some])
                at = self._flagged(at, monitor, finding, drifted, active)
            self._tell(monitor, shown.part(some.start, some.stop), losses[some], finding, ruling, at)
        return at

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
            shown = self._shown(at, waiting, losses_of(self.rules, waiting), times_s)
            _, finding = monitor.step(at.states[monitor.name], shown)
        except DataError:
            return at  # told once the batch is full
        return self.labelled(at, waiting, active) if self._mattering(monitor, finding).alarm else at

    def _mattering(self, monitor: Monitor, finding: Finding) -> Finding:
        """Of the monitor that judges the level, a rise that is none to speak of only warns."""
        return mattering(finding, self.rules.worst_loss) if monitor.any_size else finding

    def _ruling(self, at: Standing, monitor: Monitor) -> "_Ruled":
        """What the policy makes of batches that a monitor, whose state after them is there already, has judged."""
        self.problems.pop(monitor.name, None)
        labels = standing(self.rules.policy, at.facts)
        return _Ruled(self.rules.policy, monitor, labels, at.policy, at.batches.get(monitor.name, 0))

    def _tell(
        self,
        monitor: Monitor,
        batch: Observed | Labelled,
        losses: NDArray[np.float64] | None,
        finding: Finding,
        ruling: Ruling,
        at: Standing,
    ) -> None:
        if self.told is not None:
            self.told(Judged(monitor.name, batch.ids, batch.times_s, losses, finding, ruling, at))

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
            rows = latest_labelled(self.store, at.place, began) or batch
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


@dataclass
class _Ruled:
    """The policy after one batch of a monitor and the next; all of it is put into the standing when somebody asks.

    Attributes:
        labels: what they are good for, which no batch of served samples changes, and of labelled ones the first.
        policy: after the latest batch.
        batches: that the monitor has judged.
    """

    params: PolicyParams
    monitor: Monitor
    labels: Labels
    policy: PolicyState
    batches: int

    def after(self, finding: Finding) -> Ruling:
        """The ruling on the next batch."""
        role = self.monitor.role or Role.ACCURACY
        self.policy, ruling = judge(self.params, self.policy, role, finding, labels=self.labels)
        self.batches += 1
        return ruling

    def standing(self, at: Standing, finding: Finding) -> Standing:
        """With the policy as it is after the latest batch, and its finding."""
        name = self.monitor.name
        return replace(
            at,
            policy=self.policy,
            findings={**at.findings, name: finding},
            batches={**at.batches, name: self.batches},
        )


def _earlier(began: Callable[[int | None, int], Began], others: int, samples: int | None, later: int) -> Began:
    return began(samples, later + others)
