"""False alarms on the command line: what is wished for, what was promised, and the features' names."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column, Table
from rich.text import Text

from edge_agent.errors import ConfigError
from edge_agent.wire.manifest import FeatureSpec, Manifest, MonitorSpec
from server_bridge.bundles.monitors import Told
from server_bridge.bundles.rates import false_alarms_of, stream_rate_of
from server_bridge.bundles.wish import Wish

_PANEL = "Drift monitors"
_THRESHOLDS = ("threshold", "gamma")
_PROMISE_WIDTH = 22

FalseAlarms = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help='Of the whole bundle: "1 per 30 days", "1 per 10000 batches"; else the least of 1 per 1000 batches and up '
        "that the data support.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
StreamRate = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help='Samples that a gateway serves: "10 per second", "1 per minute"; by the data\'s times if not given.',
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Lowest = Annotated[
    bool,
    typer.Option(
        "--lowest",
        help="Take the lowest rate that the data support, if --false-alarms is lower.",
        rich_help_panel=_PANEL,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=UNIT][,MIN..MAX]",
        help="An input value's name, unit, and what its sensor can show; in order; repeatable.",
        rich_help_panel=_PANEL,
    ),
]


def wish_of(false_alarms: str | None, stream_rate: str | None, *, lowest: bool) -> Wish:
    """What the options ask for.

    Raises:
        ConfigError: one of them is no rate.
    """
    return Wish(
        None if false_alarms is None else false_alarms_of(false_alarms),
        None if stream_rate is None else stream_rate_of(stream_rate),
        lowest,
    )


def features_of(texts: list[str]) -> list[FeatureSpec]:
    """Features as options name them.

    Args:
        texts: each ``NAME[=UNIT][,MIN..MAX]``; either end of the range may be left out.

    Raises:
        ConfigError: one is not of that form, its range is empty, or a name repeats.
    """
    features = [_feature(text) for text in texts]
    repeated = [name for name, count in Counter(feature.name for feature in features).items() if count > 1]
    if repeated:
        raise ConfigError(f"--feature {repeated[0]!r} is given twice", "give every input value its own name, in order")
    return features


def _feature(text: str) -> FeatureSpec:
    body, comma, span = text.rpartition(",")
    if not comma or ".." not in span:
        body, span = text, ".."
    name, _, unit = body.partition("=")
    low, _, high = span.partition("..")
    try:
        minimum, maximum = (float(end) if end.strip() else None for end in (low, high))
        if not name.strip() or len(name) > 128 or len(unit) > 64:
            raise ValueError
        if any(end is not None and not math.isfinite(end) for end in (minimum, maximum)):
            raise ValueError
        if minimum is not None and maximum is not None and minimum >= maximum:
            raise ConfigError(f"--feature {text!r}: its range is empty", "give the lower end first: -40..125")
        return FeatureSpec(name=name.strip(), unit=unit.strip(), minimum=minimum, maximum=maximum)
    except ValueError:
        raise ConfigError(
            f"--feature {text!r} is not NAME[=UNIT][,MIN..MAX]", "for example: --feature temperature=degC,-40..125"
        ) from None


@contextmanager
def calibration_progress() -> Iterator[Told]:
    """A bar a monitor while it is calibrated, on a terminal; gone afterwards."""
    console = Console(stderr=True)
    columns = (TextColumn("calibrating {task.description}"), BarColumn(), TaskProgressColumn())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def told(name: str, share: float) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=1.0)
            progress.update(bars[name], completed=share)

        yield told


def show_notes(notes: tuple[str, ...]) -> None:
    """What an operator should know of a calibration."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def show_monitors(manifest: Manifest) -> None:
    """What each monitor promises, and what its reference supports."""
    table = Table(
        Column("monitor", no_wrap=True),
        Column("false alarms promised", min_width=_PROMISE_WIDTH, overflow="fold"),
        *(Column(name, justify="right") for name in ("threshold", "lowest", "block", "batches")),
        title=Text("drift monitors"),
        title_justify="left",
        caption="lowest: false alarms a batch that the data can support; block: rows that depend on each other; "
        "batches: independent ones that the data are worth",
        caption_justify="left",
    )
    for name, spec in manifest.monitors.items():
        table.add_row(name, *_cells(spec))
    Console(markup=False).print(table)


def _cells(spec: MonitorSpec) -> tuple[str, str, str, str, str]:
    threshold = next((spec.parameters[key] for key in _THRESHOLDS if key in spec.parameters), None)
    shown = f"{threshold:.4g}" if isinstance(threshold, int | float) else "-"
    promise = spec.promise
    if promise is None:
        own = f"none (own rule: {spec.false_alarm_rate:.2g} a batch)" if spec.false_alarm_rate else "raises none"
        return own, shown, "-", "-", "-"
    lowest = f"{promise.lowest_rate:.2g}"
    return promise.words, shown, lowest, str(promise.block_rows), f"{promise.effective_batches:.0f}"
