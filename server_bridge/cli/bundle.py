"""``server-bridge bundle``: from a model to a bundle, and its first weights."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from edge_agent.model.bundle import Bundle, load_bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.data import read_data
from server_bridge.bundles.fit import Epoch, FitSettings, fit_bundle, score_bundle
from server_bridge.bundles.plausibility import HINT, doubt
from server_bridge.bundles.tailor.fit import fit_task, score_tasks
from server_bridge.cli.bundle_tailor import add_commands, show_tasks

app = typer.Typer(help="Build, fit and inspect bundles.", no_args_is_help=True)

THREADS_MAX = 1024
"""More would not start: onnxruntime hangs or ends the process when the system refuses a thread."""

Loss = Literal["cross-entropy", "mse"]


@app.command()
def build(
    model: Annotated[Path, typer.Argument(help="The ONNX model, opset 13 to 23, with a free batch axis.")],
    data: Annotated[Path, typer.Option(help="Held-out NPZ that calibrates the drift monitor.")],
    trainable: Annotated[
        list[str], typer.Option(help="Pattern of initialisers to train; repeatable; a leading ! excludes.")
    ],
    loss: Annotated[Loss, typer.Option(help="What is minimised and watched.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle's directory; must not exist.")],
    name: Annotated[str | None, typer.Option(help="The bundle's name; the model file's if not given.")] = None,
    monitor_batch: Annotated[int, typer.Option(min=2, help="Labelled samples a batch of the drift monitor.")] = 32,
    label_name: Annotated[list[str] | None, typer.Option(help="A class's name, in order; repeatable.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the calibration's resampling.")] = 0,
    batch_statistics: Annotated[
        bool,
        typer.Option(
            "--batch-statistics",
            help="Train batch normalisation by each batch's mean and variance, and renew the running ones.",
        ),
    ] = False,
    head: Annotated[
        bool,
        typer.Option("--head", help="Also build graphs that train the head alone, on embeddings computed once."),
    ] = False,
    embedding: Annotated[
        str | None, typer.Option(help="The value under the head; what the last dense layer reads if not given.")
    ] = None,
    personal: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of trainable tensors whose values stay on each gateway; repeatable."),
    ] = None,
) -> None:
    """Turn an ONNX model into a bundle with training graphs and a calibrated drift monitor."""
    settings = BuildSettings(
        trainable=trainable,
        loss=loss,
        name=name or model.stem,
        monitor_batch=monitor_batch,
        label_names=label_name or [],
        seed=seed,
        statistics="batch" if batch_statistics else "frozen",
        head=head or embedding is not None,
        embedding=embedding,
        personal=personal or [],
    )
    bundle = build_bundle(model, data, settings, out)
    _show(bundle)
    _show_score(bundle, data)


@app.command()
def fit(
    directory: Annotated[Path, typer.Argument(help="The bundle to start from.")],
    data: Annotated[Path, typer.Option(help="NPZ to fit.")],
    calibration: Annotated[Path, typer.Option(help="NPZ held out of it, for the drift monitor.")],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new bundle's directory; must not exist.")],
    seed: Annotated[int, typer.Option(min=0, help="Of the shuffles.")] = 0,
    learning_rate: Annotated[float, typer.Option(min=1e-12, max=10, help="Of Adam.")] = 0.003,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 32,
    monitor_batch: Annotated[int, typer.Option(min=2, help="Labelled samples a batch of the drift monitor.")] = 32,
    threads: Annotated[int, typer.Option(min=1, max=THREADS_MAX, help="Of the training step.")] = 1,
    task: Annotated[str | None, typer.Option(help="Of a tailored bundle: the task whose block is trained.")] = None,
) -> None:
    """Train a bundle's weights by its own graph, calibrate anew, write a new bundle."""
    settings = FitSettings(epochs, seed, learning_rate, batch_size, monitor_batch, threads)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("fitting", total=epochs)

        def show(epoch: Epoch) -> None:
            progress.update(bar, completed=epoch.number, description=f"loss {epoch.loss:.4f}")

        if task is None:
            bundle = fit_bundle(directory, data, calibration, settings, out, on_epoch=show)
        else:
            bundle = fit_task(directory, task, data, calibration, settings, out, on_epoch=show)
    if task is not None:
        show_tasks(bundle, score_tasks(bundle, calibration))
        return
    _show(bundle)
    _show_score(bundle, calibration)


@app.command()
def inspect(directory: Annotated[Path, typer.Argument(help="A bundle's directory.")]) -> None:
    """Check a bundle and show what it is."""
    _show(load_bundle(directory))


add_commands(app)


def _show_score(bundle: Bundle, data: Path) -> None:
    held_out = score_bundle(bundle, data)
    accuracy = "" if held_out.accuracy is None else f", accuracy {held_out.accuracy:.4f}"
    Console().print(f"held out: loss {held_out.loss:.4f}{accuracy}")
    why = doubt(held_out, read_data(data, bundle.manifest.inputs, bundle.manifest.classes).labels)
    if why is not None:
        typer.echo(f"warning: the model does not predict these labels: {why}\n  {HINT}", err=True)


def _show(bundle: Bundle) -> None:
    manifest = bundle.manifest
    table = Table("what", Column("value", overflow="fold"), title=Text(f"bundle {manifest.name}"), title_justify="left")
    table.add_row("directory", str(bundle.path))
    table.add_row("digest", bundle.digest)
    table.add_row("kind", manifest.kind + ("" if manifest.classes is None else f", {manifest.classes} classes"))
    for tensor in manifest.inputs:
        table.add_row("input", f"{tensor.name} {tensor.dtype} {tensor.shape}")
    for output in manifest.outputs:
        table.add_row("output", f"{output.name} {output.dtype} {output.shape} ({output.role})")
    for trained in manifest.trainable:
        table.add_row("trainable", f"{trained.name} {trained.shape} ({trained.role})")
    for graph in manifest.training:
        table.add_row("training graph", f"{graph.name}: {graph.loss}, {graph.optimiser}")
    for key, monitor in manifest.monitors.items():
        table.add_row(f"monitor {key}", f"batch {monitor.batch_size}: {monitor.evidence}")
    table.add_row("opset", str(manifest.opset))
    Console(markup=False).print(table)
