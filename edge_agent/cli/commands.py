"""The command line's root: its commands."""

from pathlib import Path
from typing import Annotated

import typer

import edge_agent
from edge_agent.cli.drift import app as drift
from edge_agent.cli.exits import Exit, told
from edge_agent.link.interrupt import quiet_while_loading

app = typer.Typer(
    name="edge-agent",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=edge_agent.__doc__,
)
bundles = typer.Typer(help="Look at a bundle on this machine.", no_args_is_help=True)
app.add_typer(bundles, name="bundle")
app.add_typer(drift, name="drift")
SettingsOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file, agent.toml.")]


@app.command()
def run(config: SettingsOption = Path("agent.toml")) -> None:
    """Serve, monitor, fine-tune and update until SIGTERM."""
    with quiet_while_loading():
        from edge_agent.cli.serving import serve

    raise typer.Exit(serve(config))


@app.command()
def check(
    config: SettingsOption = Path("agent.toml"),
    source_wait_s: Annotated[
        float, typer.Option(min=0.5, max=86_400, help="How long the source may be silent.")
    ] = 10.0,
) -> None:
    """Look for whatever would keep the agent from its work; remedies.

    Settings, bundle, disk, clock, certificates, broker, rights, source.
    """
    with quiet_while_loading():
        from edge_agent.cli.check import findings
        from edge_agent.link.log_lines import configure_logs

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
    from edge_agent.config import load_settings

    raise typer.Exit(Exit.OK if show(load_settings(config), as_json=json_output) else Exit.PROBLEM)


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
    told(app)
