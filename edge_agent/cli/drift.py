"""``edge-agent drift``: what the monitors say now, and what they would have said of recorded data."""

from pathlib import Path
from typing import Annotated

import typer

from edge_agent.cli.exits import Exit

app = typer.Typer(help="See what the drift monitors say, now and of recorded data.", no_args_is_help=True)
_SettingsOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file, agent.toml.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(config: _SettingsOption = Path("agent.toml"), json_output: _JsonOption = False) -> None:
    """Show the running agent's verdict and what it rests on: statistics, labels, accuracy, faults."""
    from edge_agent.cli.drift_status import show
    from edge_agent.config import load_settings

    raise typer.Exit(Exit.OK if show(load_settings(config), as_json=json_output) else Exit.PROBLEM)
