"""The command line's root: commands, log lines, exit codes."""

import faulthandler
import signal
import sys
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

import edge_agent
from edge_agent.config import AgentSettings, load_settings
from edge_agent.errors import ConfigError, DataError, EdgeError, StorageError
from edge_agent.link.interrupt import quiet_while_loading
from edge_agent.link.log_lines import configure_logs


class Exit(IntEnum):
    """The documented exit codes."""

    OK = 0
    UNEXPECTED = 1
    CONFIG = 2
    PROBLEM = 3
    STORAGE = 4
    PART_DIED = 5


app = typer.Typer(
    name="edge-agent",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=edge_agent.__doc__,
)
bundles = typer.Typer(help="Look at a bundle on this machine.", no_args_is_help=True)
app.add_typer(bundles, name="bundle")
SettingsOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file, agent.toml.")]


@app.command()
def run(config: SettingsOption = Path("agent.toml")) -> None:
    """Serve, monitor, fine-tune and update until SIGTERM."""
    signal.signal(signal.SIGTERM, _leave)  # until the agent has its own: nothing has begun yet
    with quiet_while_loading():
        from edge_agent.runtime.agent import Agent
        from edge_agent.runtime.provisioned import WronglyProvisioned, is_root_usable
        from edge_agent.runtime.serving_alone import has_served, is_usable, serve_alone

    settings = _settings(config)
    configure_logs(settings.log.level)
    faulthandler.enable()  # a watchdog's SIGABRT writes every thread's stack to the log
    data_dir, root = settings.gateway.data_dir, settings.gateway.root
    try:
        agent = Agent(settings)
    except StorageError as error:
        _end_alone(serve_alone(settings, error, mended=lambda: is_usable(data_dir)))
    except WronglyProvisioned as error:
        if not has_served(data_dir):
            raise  # nobody relies on it yet, and whoever installs it is there
        _end_alone(serve_alone(settings, error, mended=lambda: is_root_usable(root)))
    raise typer.Exit(Exit.PART_DIED if agent.run() else Exit.OK)


@app.command()
def check(
    config: SettingsOption = Path("agent.toml"),
    source_wait_s: Annotated[float, typer.Option(min=0.5, help="How long the source may be silent.")] = 10.0,
) -> None:
    """Look at settings, bundle, disk, clock, certificates, broker, rights and source; findings come with remedies."""
    with quiet_while_loading():
        from edge_agent.cli.check import findings

    configure_logs("error")
    problems = 0
    for finding in findings(config, source_wait_s=source_wait_s):
        problems += not finding.ok
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what}: {finding.saw}")
        if finding.remedy and not finding.ok:
            typer.echo(f"      remedy: {finding.remedy}")
    raise typer.Exit(Exit.PROBLEM if problems else Exit.OK)


@app.command()
def status(
    config: SettingsOption = Path("agent.toml"),
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the agent on this machine runs and holds."""
    from edge_agent.cli.status import show

    raise typer.Exit(Exit.OK if show(_settings(config), as_json=json_output) else Exit.PROBLEM)


@bundles.command()
def inspect(
    directory: Annotated[Path, typer.Argument(help="The bundle's directory.")],
    graph: Annotated[list[str] | None, typer.Option(help="Training graph to look at; repeatable; all if none.")] = None,
    measure: Annotated[bool, typer.Option(help="Run every graph, for its time and memory here.")] = True,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a bundle: what trains, how many parameters, what it takes and gives, memory and time on this machine."""
    with quiet_while_loading():
        from edge_agent.cli.bundle_inspect import as_json, inspect, lines

    found, sound = inspect(directory, graph or [], measure=measure)
    for line in [as_json(found)] if json_output else lines(found):
        typer.echo(line)
    raise typer.Exit(Exit.OK if sound else Exit.PROBLEM)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(edge_agent.__version__)


def main() -> None:
    """Run the command line; errors that a person can mend are one line, not a traceback."""
    try:
        app()
    except (ConfigError, DataError) as error:
        _complain(error)
        sys.exit(Exit.CONFIG)
    except StorageError as error:
        _complain(error)
        sys.exit(Exit.STORAGE)
    except EdgeError as error:
        _complain(error)
        sys.exit(Exit.UNEXPECTED)


def _end_alone(mended: bool) -> NoReturn:
    """Once the fault is mended with the exit code of storage: the service starts the whole agent."""
    raise typer.Exit(Exit.STORAGE if mended else Exit.OK) from None


def _settings(path: Path) -> AgentSettings:
    return load_settings(path)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(Exit.OK)


def _complain(error: EdgeError) -> None:
    typer.echo(f"edge-agent: {error.problem}", err=True)
    if error.hint:
        typer.echo(f"  {error.hint}", err=True)
