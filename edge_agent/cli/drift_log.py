"""What the watch and the screen say during a replay, kept for the report."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_agent.cli.drift_player import Moment, Played
from edge_agent.cli.drift_replayed import Change, Episode, FaultRun, Fired, MonitorRun, Replayed, Window
from edge_agent.cli.drift_words import NO_THRESHOLD
from edge_agent.drift.faults import FaultReport, Screened
from edge_agent.drift.finding import Attribution
from edge_agent.drift.policy.catalogue import ACCURACY
from edge_agent.drift.policy.labels import label_words
from edge_agent.drift.rises import clip_losses
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_judging import Judged
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_severity import accuracy_now
from edge_agent.runtime.watch_status import why
from edge_agent.samples.record import LabelledRow, Part
from edge_agent.wire.messages import FlagEvent

CHANGES_KEPT = 10_000
FAULTS_KEPT = 10_000
FLAGS_KEPT = 10_000
EPISODES_KEPT = 10_000


class ReplayLog:
    """Kept as it happens; bounded.

    Args:
        played: what is being played.
    """

    def __init__(self, rules: WatchRules, played: Played) -> None:
        self._rules = rules
        self._played = played
        self._said = Replayed("", rules.manifest.name)
        self._row = 0
        self._window = 0
        self._alarming: dict[str, tuple[Episode, int]] = {}
        self._open: dict[tuple[int, str], FaultRun] = {}
        for one in (rules.labelled, *rules.served):
            monitor = one.monitor
            spec = rules.manifest.monitors.get(monitor.name)
            promise = "" if spec is None or spec.promise is None else spec.promise.words
            sees = "labelled" if one is rules.labelled else "served"
            run = MonitorRun(monitor.name, sees, monitor.batch_size, monitor.rate, promise)
            self._said.monitors[monitor.name] = run

    def begins(self, moment: Moment) -> None:
        """What is judged from now on is judged when these rows had been served."""
        self._row = moment.rows

    def labelled(self, rows: list[LabelledRow]) -> None:
        """Labels that came in time; the watch judges the loss of no sample with a broken reading."""
        self._said.labelled += len(rows)
        unfit = sum(row.part is Part.UNFIT for row in rows)
        if unfit:
            self.passed_over("labelled samples whose readings are broken or not finite", unfit)

    def passed_over(self, why: str, count: int) -> None:
        """Samples or labels that nothing judged."""
        self._said.passed_over[why] = self._said.passed_over.get(why, 0) + count

    def judged(self, judged: Judged) -> None:
        """A batch, as the watch judged it."""
        run, finding = self._said.monitors[judged.monitor], judged.finding
        run.batches += 1
        run.warnings += finding.warning
        run.above += finding.alarm
        if 0 < finding.threshold < NO_THRESHOLD:
            ratio = finding.statistic / finding.threshold
            run.ratio.add(self._row, ratio)
            run.highest = max(run.highest, ratio)
        if finding.alarm:
            self._alarm(run, judged)
        if judged.losses is not None and len(judged.losses):
            self._said.loss.add(self._row, float(clip_losses(judged.losses, self._rules.worst_loss).mean()))
        self._verdict(str(judged.ruling.verdict), judged)
        if judged.ruling.flags and len(self._said.fired) < FLAGS_KEPT:
            self._said.fired.append(self._fired(judged.at.events[-1], judged))

    def screened(self, moment: Moment, screened: Screened) -> None:
        """Faults that began or ended in the batch of a moment."""
        for report in screened.reports:
            self._fault(moment, report)

    def estimated(self, watch: DriftWatch) -> None:
        """The latest estimate without labels, if it is another one."""
        estimate = accuracy_now(self._rules, watch.standing)
        if estimate is None or estimate.windows == self._window:
            return
        self._window = estimate.windows
        refused = estimate.refused
        self._said.windows.append(
            Window(
                row=self._row,
                rows=estimate.rows,
                quantity=estimate.quantity,
                estimate=None if refused else float(estimate.value),
                low=None if refused else float(estimate.low),
                high=None if refused else float(estimate.high),
                true=None,
                refused=(estimate.reason or estimate.refusal) if refused else "",
            )
        )

    def replayed(self, watch: DriftWatch, truth: NDArray[np.float32], store: Mapping[str, int]) -> Replayed:
        """All of it, once the recording has come to its end.

        Args:
            truth: (rows,) whether right, or the loss; NaN without a label.
            store: what the sample store passed over, in words.
        """
        said, played, at = self._said, self._played, watch.standing
        said.rows, said.timed = played.rows, played.timed
        said.first_time_s, said.last_time_s = float(played.times_s[0]), float(played.times_s[-1])
        said.verdict = str(at.policy.verdict)
        said.why = why(self._rules, at)
        said.labels = label_words(self._rules.policy, at.facts)
        said.passed_over |= store
        said.windows = [self._with_truth(window, truth) for window in said.windows]
        said.notes += played.notes
        for name, problem in watch.problems.items():
            said.notes.append(f"{name} could not judge its last batch: {problem}")
        if watch.unjudged_batches:
            said.notes.append(f"{watch.unjudged_batches} batches could not be judged")
        return said

    def _verdict(self, verdict: str, judged: Judged) -> None:
        changes = self._said.changes
        before = changes[-1].verdict if changes else "none"
        if verdict != before and len(changes) < CHANGES_KEPT:
            time_s, words = float(judged.times_s[-1]), why(self._rules, judged.at)
            changes.append(Change(self._row, time_s, judged.ids[-1], verdict, words))

    def _alarm(self, run: MonitorRun, judged: Judged) -> None:
        """Another batch of an episode, or the first of the next."""
        finding, sample, time_s = judged.finding, judged.ids[-1], float(judged.times_s[-1])
        ratio = finding.statistic / finding.threshold if finding.threshold > 0 else math.inf
        open_one, last_batch = self._alarming.get(run.name, (None, 0))
        if open_one is not None and run.batches - last_batch <= self._rules.policy.calm_batches:
            one = open_one
            one.last_row, one.last_sample, one.last_time_s = self._row, sample, time_s
            one.batches += 1
        else:
            one = Episode(run.name, self._row, sample, time_s, self._row, sample, time_s, 1, -math.inf, "", ())
            run.alarms += 1
            if len(self._said.episodes) < EPISODES_KEPT:
                self._said.episodes.append(one)
        if ratio > one.highest:
            one.highest, one.shift, one.attributions = ratio, str(finding.shift), finding.attributions
        self._alarming[run.name] = (one, run.batches)

    def _fired(self, flag: FlagEvent, judged: Judged) -> Fired:
        changed = (Attribution(one.name, one.before, one.now, one.unit, one.weight) for one in flag.attributions)
        return Fired(
            row=self._row,
            sample=judged.ids[-1],
            time_s=float(judged.times_s[-1]),
            monitor=flag.monitor,
            statistic=flag.statistic,
            threshold=flag.threshold,
            first_sample=flag.first_drifted_sample,
            first_time_s=flag.first_drifted_time_s,
            shift=str(flag.shift or "unknown"),
            severity=flag.severity or 0.0,
            severity_of=flag.severity_by or "",
            attributions=tuple(changed),
            tests=tuple(
                (one.monitor, one.statistic, one.threshold) for one in flag.tests if one.threshold < NO_THRESHOLD
            ),
        )

    def _fault(self, moment: Moment, report: FaultReport) -> None:
        """A report that begins a fault opens a run; its end closes it."""
        key = (report.sensor, report.kind.word)
        first, last = self._rows_of(moment, report)
        run = self._open.pop(key, None)
        if run is None:
            if len(self._said.faults) >= FAULTS_KEPT:
                return
            name = report.name or "the samples' times"
            value = report.value if math.isfinite(report.value) else None
            run = FaultRun(name, report.kind.word, report.unit, value, first, report.since_s, detail=report.detail)
            self._said.faults.append(run)
        if report.until_s is not None or report.sensor < 0:
            run.last_row, run.last_time_s = last, report.since_s if report.until_s is None else report.until_s
        else:
            self._open[key] = run

    def _rows_of(self, moment: Moment, report: FaultReport) -> tuple[int, int]:
        """Where in the recording it began and ended; where times run backwards, the batch in which that was seen."""
        start = moment.rows - (0 if moment.samples is None else len(moment.samples.ids))
        if not self._played.forwards:
            return start, moment.rows - 1
        times = self._played.times_s[: moment.rows]
        first = min(moment.rows - 1, int(np.searchsorted(times, report.since_s)))
        last = first if report.until_s is None else int(np.searchsorted(times, report.until_s)) - 1
        return first, max(first, last)

    def _with_truth(self, window: Window, truth: NDArray[np.float32]) -> Window:
        estimating = [one.monitor.params for one in self._rules.served if one.monitor.name == ACCURACY]
        clip = estimating[0].clip if estimating and window.quantity == "loss" else math.inf
        rows = truth[max(0, window.row - window.rows) : window.row].astype(np.float64)
        rows = rows[~np.isnan(rows)]
        return replace(window, true=float(np.minimum(rows, clip).mean()) if len(rows) else None)
