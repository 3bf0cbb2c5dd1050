"""``edge-agent drift status``: what the running agent's monitors say, from its status file."""

import json
import time
from collections.abc import Iterator
from typing import Any

import typer

from edge_agent.cli.drift_words import NO_THRESHOLD, time_words
from edge_agent.config import AgentSettings
from edge_agent.errors import ConfigError, StorageError
from edge_agent.link.durable import read_json
from edge_agent.runtime.drift_status import Changed, DriftStatus, MonitorStatus
from edge_agent.runtime.instance import STATUS_FILE, is_running

_FIGURES = 4


def show(settings: AgentSettings, *, as_json: bool) -> bool:
    """Print what the monitors say; returns whether an agent runs and says it.

    Raises:
        ConfigError: the agent that ran here had no monitors at work.
        StorageError: the status file cannot be read.
        DataError: it is no such status.
    """
    running = is_running(settings.gateway.data_dir)
    path = settings.gateway.data_dir / STATUS_FILE
    stored = read_json(path) if path.exists() else None
    if stored is None:
        typer.echo(
            json.dumps({"running": running}) if as_json else "nothing written yet; a running agent does every 10 s"
        )
        return running
    if not isinstance(stored, dict):
        raise StorageError(f"{path} is no status", "remove it; the agent writes it anew")
    drift = DriftStatus.of_status(stored)
    if drift is None:
        raise ConfigError(f"{path} says nothing of drift", "upgrade the agent, or start it")
    age_s = _age_s(stored)
    if as_json:
        typer.echo(json.dumps({"running": running, "age_s": round(age_s, 1), **drift.to_document()}))
        return running
    for line in lines(drift, running=running, age_s=age_s):
        typer.echo(line)
    return running


def lines(drift: DriftStatus, *, running: bool, age_s: float) -> Iterator[str]:
    """The status for people, a line a fact."""
    yield f"{drift.verdict}{f': {drift.why}' if drift.why else ''}"
    stale = "" if running else "; the agent does NOT run"
    yield f"as of {age_s:.0f} s ago{stale}"
    if drift.verdict != "none":
        yield f"severity {drift.severity:.2f} by {drift.severity_of or 'statistic'}, {_shift(drift.shift)}"
    yield from _flag_lines(drift)
    for monitor in drift.monitors:
        yield from _monitor_lines(monitor, decides=monitor.name == drift.rule)
    yield f"labels: {_labels(drift)}"
    if drift.accuracy is not None:
        yield f"accuracy without labels: {_accuracy(drift)}"
    for fault in drift.faults:
        detail = f" ({fault.detail})" if fault.detail else ""
        share = "" if fault.share is None else f" on {100 * fault.share:.0f} % of its latest readings"
        yield f"fault: {fault.feature} is {fault.fault}{share}{detail}"
    if not drift.faults:
        yield "faults: none"


def _flag_lines(drift: DriftStatus) -> Iterator[str]:
    standing = "none open" if drift.open_flag is None else f"{drift.open_flag[:12]} is open"
    first = "" if drift.first_drifted_sample is None else f", first drifted sample {drift.first_drifted_sample}"
    cooling = f", none raised for {drift.cooling} more batches" if drift.cooling else ""
    yield f"flags: {drift.flags} raised, {standing}{first}{cooling}"
    if drift.unjudged_batches:
        yield f"batches that could not be judged: {drift.unjudged_batches}"


def _monitor_lines(monitor: MonitorStatus, *, decides: bool) -> Iterator[str]:
    role = " (decides)" if decides else "" if monitor.flags else " (warns only)"
    yield f"{monitor.name}{role}: {monitor.level}, {_statistic(monitor)}, {_seen(monitor)}"
    if monitor.problem:
        yield f"    not judged: {monitor.problem}"
    for changed in monitor.attributions:
        yield f"    {changed_words(changed)}"


def changed_words(changed: Changed) -> str:
    """A quantity that changed, in its own unit."""
    unit = f" {changed.unit}" if changed.unit else ""
    before, now = _figure(changed.before), _figure(changed.now)
    return f"{changed.name}: {before}{unit} before, {now}{unit} now ({100 * changed.weight:.0f} % of it)"


def _statistic(monitor: MonitorStatus) -> str:
    if monitor.statistic is None:
        return "nothing judged yet"
    if monitor.threshold is None or monitor.threshold > NO_THRESHOLD:
        return f"statistic {_figure(monitor.statistic)}, raises no alarm"
    warning = "" if monitor.warning_threshold is None else f", warning {_figure(monitor.warning_threshold)}"
    rate = f", {monitor.false_alarm_rate:.2g} false alarms a batch" if monitor.false_alarm_rate else ""
    return f"statistic {_figure(monitor.statistic)} of {_figure(monitor.threshold)}{warning}{rate}"


def _seen(monitor: MonitorStatus) -> str:
    which = "labelled samples" if monitor.sees == "labelled" else "samples as served"
    if monitor.only_task is not None:
        which += f" (of task {monitor.only_task} only: no other task is watched without labels)"
    until = "" if monitor.judged_time_s is None else f", the latest of {time_words(monitor.judged_time_s)}"
    return f"{monitor.batches} batches of {monitor.batch_size} {which}{until}, {monitor.waiting} wait"


def _labels(drift: DriftStatus) -> str:
    labels = drift.labels
    if labels.says:
        return labels.says
    delay = "" if labels.delay_median_s is None else f", {_figure(labels.delay_median_s)} s after serving (median)"
    biased = "; the labelled ones differ from the others" if labels.biased else ""
    return f"{labels.labelled} of the latest {labels.served} samples{delay}{biased}"


def _accuracy(drift: DriftStatus) -> str:
    accuracy = drift.accuracy
    if accuracy is None or accuracy.estimate is None:
        return f"refused: {accuracy.refused if accuracy is not None else ''}"
    interval = "" if accuracy.low is None or accuracy.high is None else f" ({accuracy.low:.3f} to {accuracy.high:.3f})"
    reference = "" if accuracy.reference is None else f", {accuracy.reference:.3f} on the bundle's held-out data"
    return f"{accuracy.estimate:.3f}{interval} on {accuracy.rows} samples{reference}"


def _shift(shift: str) -> str:
    return "what changed is not known" if shift == "unknown" else f"{shift} shift"


def _figure(value: float) -> str:
    return f"{value:.{_FIGURES}g}"


def _age_s(stored: dict[str, Any]) -> float:
    written = stored.get("written_s", 0)
    return max(0.0, time.time() - float(written)) if isinstance(written, int | float) else 0.0
