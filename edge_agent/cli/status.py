"""``edge-agent status``: the running agent's own last word, and whether it still runs."""

import json
import time
from collections.abc import Iterator
from typing import Any

import typer

from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError
from edge_agent.link.durable import read_json
from edge_agent.runtime.adaptation_status import ADAPTATION_KEY, adaptation_lines
from edge_agent.runtime.drift_status import DRIFT_KEY, DriftStatus
from edge_agent.runtime.instance import STATUS_FILE, is_running


def show(settings: AgentSettings, *, as_json: bool) -> bool:
    """Print the status; returns whether the agent runs.

    Raises:
        StorageError: the status file exists and cannot be read.
        DataError: what it says of drift is no such status.
    """
    running = is_running(settings.gateway.data_dir)
    path = settings.gateway.data_dir / STATUS_FILE
    if not path.exists():
        typer.echo(json.dumps({"running": running}) if as_json else f"running: {_yes(running)}; no status written yet")
        return running
    stored = read_json(path)
    if not isinstance(stored, dict):
        raise StorageError(f"{path} is no status", "remove it; the agent writes it anew")
    if as_json:
        typer.echo(json.dumps({"running": running, **stored}))
        return running
    typer.echo(
        f"running: {_yes(running)}, status {max(0.0, time.time() - float(stored.get('written_s', 0))):.0f} s old"
    )
    for name, value in stored.items():
        if name not in ("written_s", DRIFT_KEY, ADAPTATION_KEY, "overlay"):
            typer.echo(f"{name}: {value}")
    for line in (*adaptation_lines(stored), *_drift_lines(stored)):
        typer.echo(line)
    return running


def _drift_lines(stored: dict[str, Any]) -> Iterator[str]:
    """What `edge-agent drift status` has more of: a line a monitor, the labels, the estimated accuracy."""
    drift = DriftStatus.of_status(stored)
    if drift is None:
        return
    if drift.verdict != "none":
        severe = f"severity {drift.severity:.2f} by {drift.severity_of}"
        yield f"drift: {drift.verdict}, {severe}, {drift.shift}; {drift.why}"
    for one in drift.monitors:
        judged = "nothing judged yet"
        if one.statistic is not None and one.threshold is not None and one.warning_threshold is not None:
            judged = f"{one.statistic:.4g} (warns above {one.warning_threshold:.4g}, alarms above {one.threshold:.4g})"
        yield f"monitor {one.name}: {one.level}, {judged}, {one.batches} batches"
    yield f"labels: {drift.labels.says}"
    if drift.accuracy is not None and drift.accuracy.estimate is not None:
        accuracy = drift.accuracy
        yield f"estimated without labels: {accuracy.estimate:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f})"
    elif drift.accuracy is not None:
        yield f"estimated without labels: refused, {drift.accuracy.refused}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
