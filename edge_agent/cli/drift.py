"""``edge-agent drift``: what the monitors say now, and what they would have said of recorded data."""

from pathlib import Path
from typing import Annotated

import typer

from edge_agent.cli.exits import Exit
from edge_agent.link.interrupt import quiet_while_loading

app = typer.Typer(help="See what the drift monitors say, now and of recorded data.", no_args_is_help=True)
_SettingsOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file, agent.toml.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(config: _SettingsOption = Path("agent.toml"), json_output: _JsonOption = False) -> None:
    """Show the running agent's verdict and what it rests on: statistics, labels, accuracy, faults."""
    from edge_agent.cli.drift_status import show
    from edge_agent.config import load_settings

    raise typer.Exit(Exit.OK if show(load_settings(config), as_json=json_output) else Exit.PROBLEM)


@app.command()
def replay(
    data: Annotated[Path, typer.Argument(help="A recording, .npz or .csv (docs/data.md); labels are optional.")],
    bundle: Annotated[Path, typer.Option("--bundle", "-b", help="The bundle's directory.")],
    plot: Annotated[Path | None, typer.Option("--plot", "-o", help="An SVG picture, written there.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings whose [monitor] and [samples] hold.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=COLUMN", help="Of a .csv: label, time, id ... are another column; repeatable."),
    ] = None,
    label_delay: Annotated[
        str, typer.Option(metavar="DURATION", help='From sample to label where the data say none: "2 hours".')
    ] = "0 s",
    stream_rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help='Where the data have no times: "10 per second".', show_default=False),
    ] = None,
    json_output: _JsonOption = False,
) -> None:
    """Show what would have fired on recorded data, when and why."""
    with quiet_while_loading():
        from edge_agent.cli.drift_replaying import Wanted, replayed_to_end, seconds_a_sample, seconds_of, told_columns
        from edge_agent.link.log_lines import configure_logs

    configure_logs("error")
    wanted = Wanted(
        data=data,
        bundle=bundle,
        plot=plot,
        config=config,
        columns=told_columns(column or []),
        delay_s=seconds_of("--label-delay", label_delay),
        step_s=None if stream_rate is None else seconds_a_sample(stream_rate),
        as_json=json_output,
    )
    for line in replayed_to_end(wanted):
        typer.echo(line)
