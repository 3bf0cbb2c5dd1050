"""A replay in words and as JSON."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from edge_agent.cli.drift_replayed import (
    Change,
    Episode,
    FaultRun,
    Fired,
    MonitorRun,
    Replayed,
    Window,
    attribution_words,
)
from edge_agent.cli.drift_words import time_words

SHOWN_MOST = 40
WINDOWS_SHOWN = 12
"""Flags, verdicts, faults, and windows in words; JSON has them all."""


def lines(replayed: Replayed) -> Iterator[str]:
    """What happened, a line a fact."""
    yield from _what(replayed)
    yield from _table(replayed)
    yield from _flags(replayed)
    yield from _episodes(replayed)
    yield from _verdicts(replayed)
    yield from _faults(replayed)
    yield from _accuracy(replayed)
    for note in replayed.notes:
        yield f"note: {note}"


def as_json(replayed: Replayed) -> str:
    """All of it; the series are left to the picture."""
    document = asdict(replayed)
    del document["loss"]
    for run in document["monitors"].values():
        del run["ratio"]
    document["monitors"] = list(document["monitors"].values())
    return json.dumps(_plain(document), allow_nan=False)


def _what(replayed: Replayed) -> Iterator[str]:
    span = ""
    if replayed.timed:
        span = f", {time_words(replayed.first_time_s)} to {time_words(replayed.last_time_s)}"
    yield f"{replayed.rows} samples{span}; {replayed.labelled} with a label in time"
    for why, count in replayed.passed_over.items():
        yield f"passed over: {count} {why}"
    if replayed.labels:
        yield f"labels at the end: {replayed.labels}"
    yield f"verdict at the end: {replayed.verdict}{f' ({replayed.why})' if replayed.why else ''}"


def _table(replayed: Replayed) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("monitor", "batches", "warn", "above", "alarms", "promised", "highest / threshold", "promise")
    ]
    rows.extend(_cells(run) for run in replayed.monitors.values())
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    yield ""
    for row in rows:
        first, *numbers, last = row
        padded = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *padded, last]).rstrip()


def _cells(run: MonitorRun) -> tuple[str, ...]:
    promises = run.promised and run.promise and not run.promise.startswith("none")
    expected = f"{run.promised * run.batches:.2g}" if run.promised and promises else "-"
    sees = f"{run.name} ({run.sees}, {run.batch_size})"
    highest = f"{run.highest:.2f}" if len(run.ratio) else "-"
    counts = str(run.batches), str(run.warnings), str(run.above), str(run.alarms)
    return (sees, *counts, expected, highest, run.promise or "-")


def _flags(replayed: Replayed) -> Iterator[str]:
    yield ""
    yield f"flags: {len(replayed.fired) or 'none'}"
    for number, fired in enumerate(replayed.fired[:SHOWN_MOST], start=1):
        yield from _flag(number, fired)
    if len(replayed.fired) > SHOWN_MOST:
        yield f"  and {len(replayed.fired) - SHOWN_MOST} more (--json)"


def _flag(number: int, fired: Fired) -> Iterator[str]:
    kind = "" if fired.shift == "unknown" else f", {fired.shift} shift"
    severity = f", severity {fired.severity:.2f} by {fired.severity_of}" if fired.severity_of else ""
    yield f"  {number}. sample {fired.sample} at {time_words(fired.time_s)}: {fired.monitor}{kind}{severity}"
    yield f"     first drifted: sample {fired.first_sample} at {time_words(fired.first_time_s)}"
    told = ", ".join(f"{name} {statistic:.4g} of {threshold:.4g}" for name, statistic, threshold in fired.tests)
    yield f"     tests: {told or fired.why}"
    if fired.attributions:
        yield f"     changed: {'; '.join(attribution_words(one) for one in fired.attributions)}"


def _episodes(replayed: Replayed) -> Iterator[str]:
    yield f"alarms: {len(replayed.episodes) or 'none'}"
    for one in replayed.episodes[:SHOWN_MOST]:
        yield f"  {_episode(one)}"
    if len(replayed.episodes) > SHOWN_MOST:
        yield f"  and {len(replayed.episodes) - SHOWN_MOST} more (--json)"


def _episode(one: Episode) -> str:
    span = f"from sample {one.first_sample} at {time_words(one.first_time_s)}"
    if one.last_row > one.first_row:
        span = f"{span} to {one.last_sample} at {time_words(one.last_time_s)}"
    kind = "" if one.shift == "unknown" else f", {one.shift} shift"
    changed = "; ".join(attribution_words(part) for part in one.attributions)
    told = f": {changed}" if changed else ""
    return f"{one.monitor} {span}, at most {one.highest:.1f} times its threshold{kind}{told}"


def _verdicts(replayed: Replayed) -> Iterator[str]:
    changes = replayed.changes
    yield f"verdicts: {'none all along' if not changes else ''}".rstrip()
    for change in changes[:SHOWN_MOST]:
        yield f"  {_verdict(change)}"
    if len(changes) > SHOWN_MOST:
        yield f"  and {len(changes) - SHOWN_MOST} more (--json)"


def _verdict(change: Change) -> str:
    why = f" ({change.why})" if change.why and change.verdict != "none" else ""
    return f"{change.verdict} from sample {change.sample} at {time_words(change.time_s)}{why}"


def _faults(replayed: Replayed) -> Iterator[str]:
    yield f"faults: {len(replayed.faults) or 'none'}"
    for fault in replayed.faults[:SHOWN_MOST]:
        yield f"  {_fault(fault)}"
    if len(replayed.faults) > SHOWN_MOST:
        yield f"  and {len(replayed.faults) - SHOWN_MOST} more (--json)"


def _fault(fault: FaultRun) -> str:
    end = "the end" if fault.last_row is None else f"row {fault.last_row}"
    value = "" if fault.value is None else f", first {fault.value:.4g} {fault.unit}".rstrip()
    detail = f" ({fault.detail})" if fault.detail else ""
    began = f"from row {fault.first_row}, {time_words(fault.first_time_s)}"
    return f"{fault.feature} {fault.fault} {began}, to {end}{value}{detail}"


def _accuracy(replayed: Replayed) -> Iterator[str]:
    windows = replayed.windows
    if not windows:
        return
    quantity = windows[0].quantity
    given = [window for window in windows if window.estimate is not None]
    yield f"{quantity} without labels: {len(given)} windows estimated, {len(windows) - len(given)} refused"
    both = [window for window in given if window.true is not None]
    if both:
        errors = [abs(float(w.estimate) - float(w.true)) for w in both if w.estimate is not None and w.true is not None]
        covered = sum(_covers(window) for window in both)
        yield f"  beside labels: mean error {sum(errors) / len(errors):.4f}, interval holds in {covered} of {len(both)}"
    for window in windows[:WINDOWS_SHOWN]:
        yield f"  {_window(window)}"
    if len(windows) > WINDOWS_SHOWN:
        yield f"  and {len(windows) - WINDOWS_SHOWN} more (--json)"


def _covers(window: Window) -> bool:
    if window.true is None or window.low is None or window.high is None:
        return False
    return window.low <= window.true <= window.high


def _window(window: Window) -> str:
    true = "" if window.true is None else f", true {window.true:.3f}"
    if window.estimate is None or window.low is None or window.high is None:
        return f"to row {window.row}: refused, {window.refused}{true}"
    return f"to row {window.row}: {window.estimate:.3f} ({window.low:.3f} to {window.high:.3f}){true}"


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
