"""``edge-agent status``: the running agent's own last word, and whether it still runs."""

import json
import time

import typer

from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError
from edge_agent.link.durable import read_json
from edge_agent.runtime.instance import STATUS_FILE, is_running


def show(settings: AgentSettings, *, as_json: bool) -> bool:
    """Print the status; returns whether the agent runs.

    Raises:
        StorageError: the status file exists and cannot be read.
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
        if name != "written_s":
            typer.echo(f"{name}: {value}")
    return running


def _yes(value: bool) -> str:
    return "yes" if value else "no"
