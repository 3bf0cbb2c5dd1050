"""A recording through the gateway's own server, sample store and drift watch, on a clock of its own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.cli.drift_player import Moment, Played
from edge_agent.cli.drift_replayed import Change, Fired, MonitorRun, Replayed, Window
from edge_agent.config import MonitorSection, SamplesSection
from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Attribution
from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.drift.policy.catalogue import ACCURACY
from edge_agent.drift.rises import clip_losses
from edge_agent.errors import DataError
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import WEIGHTS, Bundle
from edge_agent.runtime.watch import DriftWatch, ServedPart
from edge_agent.runtime.watch_rules import WatchRules, watch_rules
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.scoring import row_losses
from edge_agent.samples.store import SampleStore
from edge_agent.samples.tasks import by_task, task_of
from edge_agent.serving.server import ModelServer
from edge_agent.wire.messages import FlagEvent
from edge_agent.wire.tasks import task_classes

GATEWAY = "replay"
MOMENT_ROWS_MOST = 256
_OUTBOX_BYTES, _OUTBOX_S = 1024 * 1024, 86_400.0
_CHANGES_KEPT = 10_000


class Replay:
    """One pass of a recording, judged as a gateway with these settings would have judged it.

    Args:
        bundle: its own weights serve.
        monitor, samples: the gateway's settings.
        folder: for the databases of the time of the replay.

    Raises:
        ConfigError: the bundle lacks the monitor that the settings ask for.
        DataError: a monitor's constants make no sense.
        StorageError: the folder cannot be written.
    """

    def __init__(self, bundle: Bundle, monitor: MonitorSection, samples: SamplesSection, folder: Path) -> None:
        manifest = bundle.manifest
        self._manifest = manifest
        self._rules = watch_rules(monitor, bundle)
        self._server = ModelServer(bundle, bundle.initial_weights(), manifest.files[WEIGHTS], 0, "root")
        self._samples_db = open_database(folder / "samples.db", synchronous="NORMAL")
        self._agent_db = open_database(folder / "agent.db", synchronous="NORMAL")
        self._store = SampleStore(
            self._samples_db,
            inputs=manifest.inputs,
            classes=manifest.classes,
            proof_share=samples.proof_share,
            max_samples=samples.max_samples,
            label_wait_s=samples.label_wait_s,
            max_bytes=samples.max_bytes,
            task_classes=task_classes(manifest),
            ignored_label=manifest.ignored_label,
        )
        outbox = Outbox(self._agent_db, GATEWAY, max_bytes=_OUTBOX_BYTES, max_age_s=_OUTBOX_S)
        self._watch = DriftWatch(self._agent_db, outbox, self._store, gateway=GATEWAY, rules=self._rules)
        self._log = _Log(self._watch, self._rules)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._samples_db.close()
        self._agent_db.close()

    def run(self, played: Played, *, delay_s: float, progress: Callable[[int], None]) -> Replayed:
        """Play the recording to its end.

        Args:
            delay_s: from sample to label, where the recording says none.
            progress: told the rows played.

        Raises:
            StorageError: the disk refuses.

        Cost: fixed memory beside the recording and 8 bytes a row; about 0.1 ms a sample.
        """
        truth = np.full(played.rows, np.nan, np.float32)
        size = min(MOMENT_ROWS_MOST, *(one.monitor.batch_size for one in self._rules.every))
        for moment in played.moments(max(2, size), delay_s=delay_s):
            self._at(moment, played, truth)
            progress(moment.rows)
        return self._log.replayed(played, truth, self._store_words())

    def _at(self, moment: Moment, played: Played, truth: NDArray[np.float32]) -> None:
        parts = self._served(moment, played, truth)
        rows: list[LabelledRow] = []
        with self._samples_db.transaction():
            for batch, served in parts:
                rows += self._store.add(batch, served, moment.now_s)
            if moment.labels:
                rows += self._store.label(moment.labels, moment.now_s)
        self._log.labelled(moment.rows, rows)
        size = self._rules.labelled.monitor.batch_size
        for start in range(0, max(1, len(rows)), size):
            given: Sequence[ServedPart] = parts if start == 0 else ()
            flags = self._watch.consume(rows[start : start + size], self._server.active, given)
            self._log.judged(moment, flags, played)

    def _served(self, moment: Moment, played: Played, truth: NDArray[np.float32]) -> list[ServedPart]:
        if moment.samples is None:
            return []
        parts, unknown = by_task(moment.samples, self._server.active.tasks)
        for task, ids in unknown.items():
            self._log.passed_over(f"of task {task!r}, which the bundle does not have", len(ids))
        served: list[ServedPart] = []
        for part in parts:
            try:
                served.append((part, self._server.process(part)))
            except DataError as error:
                self._log.passed_over(str(error), len(part.ids))
        if len(served) == 1 and len(served[0][0].ids) == len(moment.samples.ids):
            start = moment.rows - len(moment.samples.ids)
            truth[start : moment.rows] = self._truth(played, start, moment.rows, served[0])
        return served

    def _truth(self, played: Played, start: int, stop: int, part: ServedPart) -> NDArray[np.float64]:
        """(n,) 1 where right, 0 where wrong; of a regression the loss; NaN without a label."""
        found = np.full(stop - start, np.nan)
        if played.recording.labels is None or task_of(part[0]) is not None:
            return found
        labels = played.recording.labels[start:stop].astype(np.float64)
        fit = np.isfinite(labels)
        classes = self._manifest.classes
        if classes is not None:
            fit &= (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
        outputs = part[1].outputs[fit]
        if classes is not None:
            found[fit] = sample_right(self._manifest.kind, outputs, labels[fit])
        else:
            losses = sample_losses(self._manifest.loss, outputs, labels[fit], delta=self._manifest.huber_delta)
            found[fit] = losses
        return found

    def _store_words(self) -> dict[str, int]:
        counts = self._store.counts
        told = {
            "with an id that was there before": counts.duplicate_samples,
            "labels that are no class or not finite": counts.refused_labels,
            "labels that came after [samples] label_wait_s": counts.unmatched_labels,
        }
        return {words: count for words, count in told.items() if count}


class _Log:
    """What the watch says after each step, kept for the report."""

    def __init__(self, watch: DriftWatch, rules: WatchRules) -> None:
        self._watch = watch
        self._rules = rules
        self._said = Replayed("", rules.manifest.name)
        self._batches: dict[str, int] = {}
        self._window = 0
        monitors = [(rules.labelled.monitor, "labelled"), *((one.monitor, "served") for one in rules.served)]
        for monitor, sees in monitors:
            spec = rules.manifest.monitors.get(monitor.name)
            promise = "" if spec is None or spec.promise is None else spec.promise.words
            run = MonitorRun(monitor.name, sees, monitor.batch_size, monitor.rate, promise)
            self._said.monitors[monitor.name] = run

    def passed_over(self, why: str, count: int) -> None:
        self._said.passed_over[why] = self._said.passed_over.get(why, 0) + count

    def labelled(self, row: int, rows: list[LabelledRow]) -> None:
        """Labels that came when so many rows had been served."""
        manifest, most = self._rules.manifest, self._rules.worst_loss
        self._said.labelled += len(rows)
        try:
            losses = clip_losses(row_losses(manifest.loss, rows, delta=manifest.huber_delta), most)
        except DataError:  # the watch counts and names it
            return
        if len(losses):
            self._said.loss.add(row, float(losses.mean()))

    def judged(self, moment: Moment, flags: int, played: Played) -> None:
        """After one call of the watch, in which each monitor judged at most one batch."""
        standing = self._watch.standing
        last = moment.rows - 1
        for name, run in self._said.monitors.items():
            judged = standing.batches.get(name, 0)
            finding = standing.findings.get(name)
            if judged == self._batches.get(name, 0) or finding is None:
                continue
            self._batches[name] = judged
            ratio = finding.statistic / finding.threshold if finding.threshold > 0 else math.inf
            run.batches = judged
            run.warnings += finding.warning
            run.alarms += finding.alarm
            if math.isfinite(ratio):
                run.ratio.add(moment.rows, ratio)
                run.highest = max(run.highest, ratio)
        verdict = str(standing.policy.verdict)
        before = self._said.changes[-1].verdict if self._said.changes else ""
        if verdict != before and len(self._said.changes) < _CHANGES_KEPT:
            why = _why(standing.findings)
            self._said.changes.append(
                Change(moment.rows, float(played.times_s[last]), played.names[last], verdict, why)
            )
        if flags and standing.place.flag is not None:
            self._flag(FlagEvent.model_validate_json(standing.place.flag), moment, played)
        self._estimate(moment)

    def replayed(self, played: Played, truth: NDArray[np.float32], store: dict[str, int]) -> Replayed:
        said = self._said
        said.rows, said.timed = played.rows, played.timed
        said.first_time_s, said.last_time_s = float(played.times_s[0]), float(played.times_s[-1])
        said.verdict = str(self._watch.standing.policy.verdict)
        said.why = _why(self._watch.standing.findings)
        said.passed_over |= store
        said.windows = [self._with_truth(window, truth) for window in said.windows]
        said.notes += played.notes
        for name, problem in self._watch.problems.items():
            said.notes.append(f"{name} could not judge its last batch: {problem}")
        if self._watch.unjudged_batches:
            said.notes.append(f"{self._watch.unjudged_batches} batches could not be judged")
        return said

    def _flag(self, flag: FlagEvent, moment: Moment, played: Played) -> None:
        last = moment.rows - 1
        self._said.fired.append(
            Fired(
                row=moment.rows,
                sample=played.names[last],
                time_s=float(played.times_s[last]),
                monitor=flag.monitor,
                statistic=flag.statistic,
                threshold=flag.threshold,
                first_sample=flag.first_drifted_sample,
                first_time_s=flag.first_drifted_time_s,
                shift=str(flag.shift or "unknown"),
                severity=flag.severity or 0.0,
                severity_of=flag.severity_by or "",
                attributions=tuple(
                    Attribution(one.name, one.before, one.now, one.unit, one.weight) for one in flag.attributions
                ),
                tests=tuple((test.monitor, test.statistic, test.threshold) for test in flag.tests),
            )
        )

    def _estimate(self, moment: Moment) -> None:
        estimate = _estimate_of(self._rules, self._watch)
        if estimate is None or estimate.windows == self._window:
            return
        self._window = estimate.windows
        refused = estimate.refused
        self._said.windows.append(
            Window(
                row=moment.rows,
                rows=estimate.rows,
                quantity=estimate.quantity,
                estimate=None if refused else float(estimate.value),
                low=None if refused else float(estimate.low),
                high=None if refused else float(estimate.high),
                true=None,
                refused=(estimate.reason or estimate.refusal) if refused else "",
            )
        )

    def _with_truth(self, window: Window, truth: NDArray[np.float32]) -> Window:
        estimating = [one.monitor.params for one in self._rules.served if one.monitor.name == ACCURACY]
        clip = estimating[0].clip if estimating and window.quantity == "loss" else math.inf
        rows = truth[max(0, window.row - window.rows) : window.row].astype(np.float64)
        rows = rows[np.isfinite(rows)]
        return replace(window, true=float(np.minimum(rows, clip).mean()) if len(rows) else None)


def _estimate_of(rules: WatchRules, watch: DriftWatch) -> AccuracyEstimate | None:
    for one in rules.served:
        if one.monitor.name == ACCURACY and ACCURACY in watch.standing.states:
            latest: Any = one.monitor.module.latest(one.monitor.params, watch.standing.states[ACCURACY])
            return latest if isinstance(latest, AccuracyEstimate) else None
    return None


def _why(findings: Any) -> str:
    told = [
        f"{name} {finding.statistic:.4g} of {finding.threshold:.4g}"
        for name, finding in findings.items()
        if finding.warning
    ]
    return ", ".join(told)
