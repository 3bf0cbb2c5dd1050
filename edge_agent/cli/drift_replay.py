"""A recording through the gateway's own server, sample store and drift watch, on a clock of its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.cli.drift_log import ReplayLog
from edge_agent.cli.drift_player import Moment, Played
from edge_agent.cli.drift_replayed import Replayed
from edge_agent.config import MonitorSection, SamplesSection
from edge_agent.drift import faults
from edge_agent.drift.faults import FaultState
from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.errors import DataError
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import WEIGHTS, Bundle
from edge_agent.runtime.screen import screen_of
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_held import ServedPart
from edge_agent.runtime.watch_rules import watch_rules
from edge_agent.samples.record import LabelledRow, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.samples.tasks import by_task, task_of
from edge_agent.serving.server import ModelServer
from edge_agent.wire.tasks import task_classes

GATEWAY = "replay"
EXACT_ROWS_MOST = 100_000
"""Longer recordings are recorded in larger portions than a monitor's batch, as the agent does with fast streams."""
MOMENT_ROWS_MOST = 256
_OUTBOX_BYTES, _OUTBOX_S = 1024 * 1024, 86_400.0


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
        self._screen = screen_of(bundle) if monitor.sensor_faults else None
        self._screen_state = None if self._screen is None else FaultState.start(self._screen.params)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._samples_db.close()
        self._agent_db.close()

    def run(self, played: Played, *, delay_s: float, progress: Callable[[int], None]) -> Replayed:
        """Play the recording to its end; once.

        Args:
            delay_s: from sample to label, where the recording says none.
            progress: told the rows played.

        Raises:
            StorageError: the disk refuses.

        Cost: fixed memory beside the recording and 8 bytes a row; 0.1 to 0.4 ms a sample.
        """
        log = ReplayLog(self._rules, played)
        outbox = Outbox(self._agent_db, GATEWAY, max_bytes=_OUTBOX_BYTES, max_age_s=_OUTBOX_S)
        watch = DriftWatch(self._agent_db, outbox, self._store, gateway=GATEWAY, rules=self._rules, judged=log.judged)
        truth = np.full(played.rows, np.nan, np.float32)
        size = min(MOMENT_ROWS_MOST, *(one.batch_size for one in self._rules.monitors))
        if played.rows > EXACT_ROWS_MOST:
            size = max(size, MOMENT_ROWS_MOST)
        for moment in played.moments(size, delay_s=delay_s):
            log.begins(moment)
            rows, parts = self._recorded(moment, played, truth, log)
            watch.consume(rows, self._server.active, parts, now_s=moment.now_s)
            log.estimated(watch)
            progress(moment.rows)
        return log.replayed(watch, truth, self._store_words())

    def _recorded(
        self, moment: Moment, played: Played, truth: NDArray[np.float32], log: ReplayLog
    ) -> tuple[list[LabelledRow], list[ServedPart]]:
        """Served, screened and stored, as the recorder does it; labels joined."""
        rows: list[LabelledRow] = []
        parts: list[ServedPart] = []
        with self._samples_db.transaction():
            for batch, served in self._served(moment, played, truth, log):
                looked = self._screened(moment, batch, log)
                try:
                    rows += self._store.add(looked, served, moment.now_s)
                except DataError as error:
                    log.passed_over(str(error), len(batch.ids))
                    continue
                parts.append((looked, served))
            if moment.labels:
                rows += self._store.label(moment.labels, moment.now_s)
        log.labelled(rows)
        return rows, parts

    def _screened(self, moment: Moment, batch: SampleBatch, log: ReplayLog) -> SampleBatch:
        seen = None if self._screen is None else self._screen.seen(batch)
        if self._screen is None or self._screen_state is None or seen is None:
            return batch
        (whole,) = seen
        self._screen_state, screened = faults.step(self._screen.params, self._screen_state, whole)
        log.screened(moment, screened)
        return batch if screened.faulty is None else replace(batch, faulty=screened.faulty)

    def _served(self, moment: Moment, played: Played, truth: NDArray[np.float32], log: ReplayLog) -> list[ServedPart]:
        if moment.samples is None:
            return []
        parts, unknown = by_task(moment.samples, self._server.active.tasks)
        for task, ids in unknown.items():
            log.passed_over(f"of task {task!r}, which the bundle does not have", len(ids))
        served: list[ServedPart] = []
        for part in parts:
            try:
                served.append((part, self._server.process(part)))
            except DataError as error:
                log.passed_over(str(error), len(part.ids))
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
