"""``server-bridge bundle tailor`` and ``prune``: tasks on a frozen model."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edge_agent.errors import ConfigError
from edge_agent.model.bundle import Bundle
from edge_agent.wire.manifest import Manifest, OptimiserName
from server_bridge.bundles.calibrate import Score
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.tailor.build import PREVIOUS_DEFAULT, TailorSettings, tailor_bundle
from server_bridge.bundles.tailor.fit import score_tasks
from server_bridge.bundles.tailor.prune import THRESHOLD_DEFAULT, Pruning, prune_bundle
from server_bridge.cli.bundle_monitors import calibration_progress, show_notes


def add_commands(app: typer.Typer) -> None:
    """Add this file's commands to ``server-bridge bundle``."""
    app.command()(tailor)
    app.command()(prune)


def tailor(
    model: Annotated[Path, typer.Argument(help="A trained ONNX classifier, opset 13 to 23, with a free batch axis.")],
    data: Annotated[Path, typer.Option(help="Held-out NPZ that calibrates the drift monitor; column task.")],
    task: Annotated[list[str], typer.Option(help="NAME, or NAME=CLASSES where these are not the model's; repeatable.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle's directory; must not exist.")],
    previous: Annotated[
        int, typer.Option(min=0, max=100, help="Proxies come from so many layers before; 0: heads alone.")
    ] = PREVIOUS_DEFAULT,
    at: Annotated[
        list[str] | None, typer.Option(help="A value where a layer ends; repeatable; found if not given.")
    ] = None,
    optimiser: Annotated[
        list[str] | None, typer.Option(help="Of the tasks' training graphs; repeatable; all if not given.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The bundle's name; the model file's if not given.")] = None,
    monitor_batch: Annotated[
        int, typer.Option(min=2, max=65_536, help="Labelled samples a batch of the drift monitor.")
    ] = 32,
    seed: Annotated[int, typer.Option(min=0, max=2**53, help="Of the proxies and the calibration's resampling.")] = 0,
) -> None:
    """Freeze a classifier and give each task proxies and a head of its own, which alone are trained."""
    settings = TailorSettings(
        tasks=_tasks(task),
        previous=previous,
        at=at or [],
        name=name or model.stem,
        optimisers=_optimisers(optimiser or list(OPTIMISERS)),
        monitor_batch=monitor_batch,
        seed=seed,
    )
    with calibration_progress() as told:
        bundle = tailor_bundle(model, data, settings, out, told=told, noted=show_notes)
    show_tasks(bundle, score_tasks(bundle, data))


def prune(
    directory: Annotated[Path, typer.Argument(help="A tailored bundle with trained weights.")],
    data: Annotated[Path, typer.Option(help="Held-out NPZ: scores before and after, and the drift monitor.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new bundle's directory; must not exist.")],
    threshold: Annotated[
        float, typer.Option(min=0.0, max=0.999, help="Branches whose share of their mix is below it are removed.")
    ] = THRESHOLD_DEFAULT,
) -> None:
    """Remove what training left unimportant in the tasks' blocks; write a new, smaller bundle."""
    with calibration_progress() as told:
        bundle, pruning = prune_bundle(directory, data, out, threshold=threshold, told=told, noted=show_notes)
    show_pruning(bundle, pruning)


def show_tasks(bundle: Bundle, scores: Mapping[str, Score]) -> None:
    """A line for each task of a bundle."""
    table = Table("task", "classes", "trainable values", "held out", title=Text(f"bundle {bundle.manifest.name}"))
    for task in bundle.manifest.tasks:
        size = _values(bundle.manifest, task.name)
        table.add_row(task.name, str(task.classes), f"{size:,}", _words(scores.get(task.name)))
    Console(markup=False).print(table)
    Console(markup=False).print(f"{bundle.path} {bundle.digest[:12]}")


def show_pruning(bundle: Bundle, pruning: Pruning) -> None:
    """What was removed, and each task before and after."""
    removed = Table("task", "at", "removed", "coefficient", "share", title=Text("removed"))
    for branch in pruning.removed:
        share = "not read any more" if branch.share is None else f"{branch.share:.4f}"
        removed.add_row(branch.task, branch.value, branch.branch, f"{branch.alpha:.4f}", share)
    scores = Table("task", "before", "after", title=Text("held out"))
    for task, before in pruning.before.items():
        scores.add_row(task, _words(before), _words(pruning.after[task]))
    console = Console(markup=False)
    console.print(removed if pruning.removed else "nothing is below the threshold")
    console.print(scores)
    console.print(f"{pruning.values[0]:,} trainable values, now {pruning.values[1]:,}: {bundle.path}")


def _tasks(entries: list[str]) -> dict[str, int | None]:
    tasks: dict[str, int | None] = {}
    for entry in entries:
        name, given, classes = entry.partition("=")
        if name in tasks:
            raise ConfigError(f"--task {name!r} is given twice", "give each task once")
        if given and not (classes.isascii() and classes.isdigit()):
            raise ConfigError(f"--task {entry!r}: {classes!r} is no number of classes", "give NAME or NAME=CLASSES")
        tasks[name] = int(classes) if given else None
    return tasks


def _optimisers(names: list[str]) -> list[OptimiserName]:
    for name in names:
        if name not in OPTIMISERS:
            raise ConfigError(f"--optimiser {name!r} is unknown", f"one of {', '.join(OPTIMISERS)}")
    return [each for each in OPTIMISERS if each in names]


def _values(manifest: Manifest, task: str) -> int:
    return sum(prod(spec.shape) for spec in manifest.trainable if spec.role == f"task:{task}")


def _words(score: Score | None) -> str:
    if score is None:
        return "no rows"
    return f"loss {score.loss:.4f}" + ("" if score.accuracy is None else f", accuracy {score.accuracy:.4f}")
