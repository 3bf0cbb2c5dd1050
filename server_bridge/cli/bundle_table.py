"""A bundle, and how it does, for people."""

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from edge_agent.model.bundle import Bundle
from server_bridge.bundles.data import read_data
from server_bridge.bundles.fit import score_bundle
from server_bridge.bundles.plausibility import HINT, doubt


def show_score(bundle: Bundle, data: Path) -> None:
    """Loss and accuracy on held-out data, and a warning where the model predicts nothing of them."""
    held_out = score_bundle(bundle, data)
    accuracy = "" if held_out.accuracy is None else f", accuracy {held_out.accuracy:.4f}"
    Console().print(f"held out: loss {held_out.loss:.4f}{accuracy}")
    manifest = bundle.manifest
    rows = read_data(data, manifest.inputs, manifest.classes, manifest.ignored_label)
    why = doubt(held_out, rows.labels)
    if why is not None:
        typer.echo(f"warning: the model does not predict these labels: {why}\n  {HINT}", err=True)


def show_bundle(bundle: Bundle) -> None:
    """What a bundle is."""
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
        what = "running statistic" if trained.statistic else "trainable"
        table.add_row(what, f"{trained.name} {trained.shape} ({trained.role})")
    for graph in manifest.training:
        table.add_row("training graph", f"{graph.name}: {graph.loss}, {graph.optimiser}")
    for key, monitor in manifest.monitors.items():
        table.add_row(f"monitor {key}", f"batch {monitor.batch_size}: {monitor.evidence}")
    table.add_row("opset", str(manifest.opset))
    Console(markup=False).print(table)
