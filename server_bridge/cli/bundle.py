"""``server-bridge bundle``: from a model to a bundle, and its first weights."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edge_agent.model.bundle import load_bundle
from server_bridge.bundles.fit import Epoch, FitSettings, fit_bundle
from server_bridge.bundles.tailor.fit import fit_task, score_tasks
from server_bridge.cli.bundle_build import build
from server_bridge.cli.bundle_monitors import FalseAlarms, Lowest, StreamRate, show_monitors, show_notes, wish_of
from server_bridge.cli.bundle_table import show_bundle, show_score
from server_bridge.cli.bundle_tailor import add_commands, show_tasks

app = typer.Typer(help="Build, fit and inspect bundles.", no_args_is_help=True)

THREADS_MAX = 1024
"""More would not start: onnxruntime hangs or ends the process when the system refuses a thread."""

app.command()(build)


@app.command()
def fit(
    directory: Annotated[Path, typer.Argument(help="The bundle to start from.")],
    data: Annotated[Path, typer.Option(help="NPZ to fit.")],
    calibration: Annotated[Path, typer.Option(help="NPZ held out of it, in order of time, for the drift monitors.")],
    epochs: Annotated[int, typer.Option(min=1, max=1_000_000, help="Passes over the data.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new bundle's directory; must not exist.")],
    seed: Annotated[int, typer.Option(min=0, max=2**53, help="Of the shuffles.")] = 0,
    learning_rate: Annotated[float, typer.Option(min=1e-12, max=10, help="Of the graph's optimiser.")] = 0.003,
    batch_size: Annotated[int, typer.Option(min=1, max=65_536, help="Samples a step.")] = 32,
    monitor_batch: Annotated[int, typer.Option(min=2, max=65_536, help="Samples a batch of the drift monitors.")] = 32,
    threads: Annotated[int, typer.Option(min=1, max=THREADS_MAX, help="Of the training step.")] = 1,
    graph: Annotated[str, typer.Option(help="Training graph; adam if not given.", show_default=False)] = "",
    task: Annotated[str | None, typer.Option(help="Of a tailored bundle: the task whose block is trained.")] = None,
    false_alarms: FalseAlarms = None,
    stream_rate: StreamRate = None,
    lowest: Lowest = False,
) -> None:
    """Train a bundle's weights by its own graph, calibrate anew, write a new bundle."""
    wish = wish_of(false_alarms, stream_rate, lowest=lowest)
    settings = FitSettings(epochs, seed, learning_rate, batch_size, monitor_batch, threads, graph, wish=wish)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    notes: list[str] = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("fitting", total=epochs)

        def show(epoch: Epoch) -> None:
            progress.update(bar, completed=epoch.number, description=f"loss {epoch.loss:.4f}")

        def told(monitor: str, share: float) -> None:
            progress.update(bar, description=f"calibrating {monitor} {share:.0%}")

        if task is None:
            bundle = fit_bundle(
                directory, data, calibration, settings, out, on_epoch=show, told=told, noted=notes.extend
            )
        else:
            bundle = fit_task(
                directory, task, data, calibration, settings, out, on_epoch=show, told=told, noted=notes.extend
            )
    show_notes(tuple(notes))
    if task is not None:
        show_tasks(bundle, score_tasks(bundle, calibration))
        show_monitors(bundle.manifest)
        return
    show_bundle(bundle)
    show_monitors(bundle.manifest)
    show_score(bundle, calibration)


@app.command()
def inspect(directory: Annotated[Path, typer.Argument(help="A bundle's directory.")]) -> None:
    """Check a bundle and show what it is."""
    bundle = load_bundle(directory)
    show_bundle(bundle)
    show_monitors(bundle.manifest)


add_commands(app)
