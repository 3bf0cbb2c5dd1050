"""``server-bridge bundle build``: what a model does not say of itself, as options."""

from pathlib import Path
from typing import Annotated

import click
import typer

from edge_agent.errors import ConfigError
from edge_agent.wire.manifest import LossName
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.gradients.objective import LABEL_FREE
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.cli.bundle_monitors import (
    FalseAlarms,
    Features,
    Lowest,
    StreamRate,
    calibration_progress,
    features_of,
    show_monitors,
    show_notes,
    wish_of,
)
from server_bridge.cli.bundle_table import show_bundle, show_score

_LOSS, _GRAPHS = "Loss", "Training graphs"


def build(
    model: Annotated[Path, typer.Argument(help="The ONNX model, opset 13 to 23, with a free batch axis.")],
    data: Annotated[Path, typer.Option(help="Held-out NPZ, in order of time, that calibrates the drift monitors.")],
    trainable: Annotated[
        list[str], typer.Option(help="Pattern of initialisers to train; repeatable; a leading ! excludes.")
    ],
    loss: Annotated[LossName, typer.Option(help="What is minimised and watched.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle's directory; must not exist.")],
    name: Annotated[str | None, typer.Option(help="The bundle's name; the model file's if not given.")] = None,
    monitor_batch: Annotated[int, typer.Option(min=2, max=65_536, help="Samples a batch of the drift monitors.")] = 32,
    label_name: Annotated[list[str] | None, typer.Option(help="A class's name, in order; repeatable.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**53, help="Of the calibration's resampling.")] = 0,
    feature: Features = None,
    false_alarms: FalseAlarms = None,
    stream_rate: StreamRate = None,
    lowest: Lowest = False,
    class_weight: Annotated[
        list[float] | None,
        typer.Option(help="A class's weight in training, in order; repeatable.", rich_help_panel=_LOSS),
    ] = None,
    run_time_class_weights: Annotated[
        bool,
        typer.Option("--run-time-class-weights", help="The weights come with each step.", rich_help_panel=_LOSS),
    ] = False,
    label_smoothing: Annotated[
        float, typer.Option(min=0, max=0.999, help="Share of a label that goes to all classes.", rich_help_panel=_LOSS)
    ] = 0.0,
    ignore_index: Annotated[
        int | None, typer.Option(help="A label whose samples train nothing.", rich_help_panel=_LOSS)
    ] = None,
    huber_delta: Annotated[
        float, typer.Option(help="Where Huber's loss turns from a parabola to a line.", rich_help_panel=_LOSS)
    ] = 1.0,
    optimiser: Annotated[
        list[str] | None,
        typer.Option(
            click_type=click.Choice([*OPTIMISERS]),
            help="To build graphs of; repeatable; all if not given.",
            rich_help_panel=_GRAPHS,
        ),
    ] = None,
    subset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN[,PATTERN]",
            help="Also graphs that train a part: NAME-OPTIMISER; repeatable; a leading ! excludes.",
            rich_help_panel=_GRAPHS,
        ),
    ] = None,
    proximal: Annotated[
        bool, typer.Option("--proximal", help="Also graphs with FedProx's term: prox-*.", rich_help_panel=_GRAPHS)
    ] = False,
    label_free: Annotated[
        list[str] | None,
        typer.Option(
            click_type=click.Choice(LABEL_FREE),
            help="Also graphs that train without labels; repeatable.",
            rich_help_panel=_GRAPHS,
        ),
    ] = None,
    weight_decay: Annotated[
        bool,
        typer.Option(
            "--weight-decay", help="sgd, momentum and adam have the scalar weight_decay too.", rich_help_panel=_GRAPHS
        ),
    ] = False,
    batch_statistics: Annotated[
        bool,
        typer.Option(
            "--batch-statistics",
            help="Train batch normalisation by each batch's mean and variance, and renew the running ones.",
            rich_help_panel=_GRAPHS,
        ),
    ] = False,
    head: Annotated[
        bool,
        typer.Option(
            "--head",
            help="Also build graphs that train the head alone, on embeddings computed once.",
            rich_help_panel=_GRAPHS,
        ),
    ] = False,
    embedding: Annotated[
        str | None,
        typer.Option(
            help="The value under the head; what the last dense layer reads if not given.", rich_help_panel=_GRAPHS
        ),
    ] = None,
    personal: Annotated[
        list[str] | None,
        typer.Option(
            help="Pattern of trainable tensors whose values stay on each gateway; repeatable.", rich_help_panel=_GRAPHS
        ),
    ] = None,
) -> None:
    """Turn an ONNX model into a bundle with training graphs and calibrated drift monitors."""
    settings = BuildSettings(
        trainable=trainable,
        loss=loss,
        name=name or model.stem,
        monitor_batch=monitor_batch,
        label_names=label_name or [],
        seed=seed,
        class_weights=tuple(class_weight or ()),
        run_time_weights=run_time_class_weights,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
        huber_delta=huber_delta,
        optimisers=[name for name in OPTIMISERS if name in (optimiser or OPTIMISERS)],
        subsets=subsets_of(subset or []),
        proximal=proximal,
        label_free=[name for name in LABEL_FREE if name in (label_free or ())],
        weight_decay=weight_decay,
        statistics="batch" if batch_statistics else "frozen",
        head=head or embedding is not None,
        embedding=embedding,
        personal=personal or [],
        wish=wish_of(false_alarms, stream_rate, lowest=lowest),
        features=features_of(feature or []),
    )
    with calibration_progress() as told:
        bundle = build_bundle(model, data, settings, out, told=told, noted=show_notes)
    show_bundle(bundle)
    show_monitors(bundle.manifest)
    show_score(bundle, data)


def subsets_of(texts: list[str]) -> dict[str, list[str]]:
    """Patterns by subset.

    Args:
        texts: each ``NAME=PATTERN[,PATTERN]``.

    Raises:
        ConfigError: one is not of that form, or a name is given twice.
    """
    subsets: dict[str, list[str]] = {}
    for text in texts:
        name, _, patterns = text.partition("=")
        parts = [part.strip() for part in patterns.split(",")]
        if not name.strip() or not all(parts):
            raise ConfigError(f"--subset {text!r} is not NAME=PATTERN[,PATTERN]", "for example: last=fc2.*,!fc2.bias")
        if name.strip() in subsets:
            raise ConfigError(f"--subset {name.strip()!r} is given twice", "give its patterns in one, with commas")
        subsets[name.strip()] = parts
    return subsets
