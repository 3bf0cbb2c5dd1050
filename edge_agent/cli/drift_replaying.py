"""``edge-agent drift replay``: from what was typed to what is printed."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge_agent.cli.drift_chart import drift_chart
from edge_agent.cli.drift_player import Played, read_played
from edge_agent.cli.drift_replay import Replay
from edge_agent.cli.drift_replayed import Replayed
from edge_agent.cli.drift_report import as_json, lines
from edge_agent.cli.working_folder import working_folder
from edge_agent.config import MonitorSection, SamplesSection, load_settings
from edge_agent.errors import ConfigError, StorageError
from edge_agent.model.bundle import load_bundle
from edge_agent.sources.npz import COLUMN_KEYS

PROGRESS_EVERY_S = 1.0
WORKING_PREFIX = "drift-replay-"
_UNITS_S = {
    "s": 1.0,
    "second": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([a-z]*)\s*")
_RATE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(?:(hz)|(?:per|/)\s*(\d+(?:\.\d*)?)?\s*([a-z]+))\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What was typed.

    Args:
        columns: of a CSV file, by key.
        delay_s: from sample to label.
        step_s: between samples of a recording without times; None: 1.
    """

    data: Path
    bundle: Path
    plot: Path | None = None
    config: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    step_s: float | None = None
    as_json: bool = False


def replayed_to_end(wanted: Wanted) -> Iterator[str]:
    """Replay, draw, and say what happened.

    Raises:
        ConfigError: the recording or the settings do not fit (file, row, column named).
        DataError: the bundle is unfit.
        StorageError: the picture or the working files cannot be written.
    """
    if wanted.plot is not None and not wanted.plot.absolute().parent.is_dir():
        raise StorageError(f"{wanted.plot.parent} is no folder", "choose another path for the picture")
    replayed = replay_of(wanted)
    if wanted.plot is not None:
        _write(wanted.plot, drift_chart(replayed))
    if wanted.as_json:
        yield as_json(replayed)
        return
    yield from lines(replayed)
    if wanted.plot is not None:
        yield f"picture: {wanted.plot}"


def replay_of(wanted: Wanted) -> Replayed:
    """What a recording gives.

    Raises:
        ConfigError, DataError, StorageError: as :func:`replayed_to_end`.
    """
    bundle = load_bundle(wanted.bundle)
    played = read_played(wanted.data, bundle.manifest, keys=wanted.columns, step_s=wanted.step_s)
    monitor, samples = _settings(wanted, played)
    with working_folder(WORKING_PREFIX) as folder, Replay(bundle, monitor, samples, folder) as replay:
        replayed = replay.run(played, delay_s=wanted.delay_s, progress=_progress(played.rows))
    replayed.data = wanted.data.name
    return replayed


def _settings(wanted: Wanted, played: Played) -> tuple[MonitorSection, SamplesSection]:
    """The gateway's; else the defaults, by which a recording without labels is a gateway that never gets any."""
    if wanted.config is not None:
        settings = load_settings(wanted.config)
        return settings.monitor, settings.samples
    if played.labelled:
        return MonitorSection(), SamplesSection()
    return MonitorSection(label_rows=1), SamplesSection()


def told_columns(texts: list[str]) -> dict[str, str]:
    """Columns by key.

    Args:
        texts: each ``KEY=COLUMN``.

    Raises:
        ConfigError: one is not of that form, or its key is none.
    """
    columns = {}
    for text in texts:
        key, equals, column = text.partition("=")
        if not equals or not column or key not in COLUMN_KEYS:
            raise ConfigError(f"--column {text!r} is not KEY=COLUMN", f"keys: {', '.join(COLUMN_KEYS)}")
        columns[key] = column
    return columns


def seconds_of(option: str, text: str) -> float:
    """A duration: ``90 s``, ``2 hours``, ``1.5 days``.

    Raises:
        ConfigError: it is none.
    """
    found = _DURATION.fullmatch(text.lower())
    unit = None if found is None else _unit_s(found[2] or "s")
    if found is None or unit is None:
        raise ConfigError(f"{option} {text!r} is no duration", 'for example "90 s", "2 hours" or "1 day"')
    return float(found[1]) * unit


def seconds_a_sample(text: str) -> float:
    """Seconds between samples at a rate: ``10 per second``, ``1 per 15 minutes``, ``50 Hz``.

    Raises:
        ConfigError: it is no rate.
    """
    found = _RATE.fullmatch(text)
    unit = 1.0 if found is not None and found[2] else None if found is None else _unit_s(found[4].lower())
    if found is None or unit is None or float(found[1]) <= 0 or float(found[3] or 1) <= 0:
        raise ConfigError(f"--stream-rate {text!r} is no rate", 'for example "10 per second" or "1 per 15 minutes"')
    return float(found[3] or 1) * unit / float(found[1])


def _unit_s(name: str) -> float | None:
    return _UNITS_S.get(name, _UNITS_S.get(name.removesuffix("s")))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror})", "choose another path for the picture"
        ) from error


def _progress(rows: int) -> Callable[[int], None]:
    """One line on a terminal, renewed each second; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda done: None
    began_s = time.monotonic()
    told_s = began_s

    def told(done: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= PROGRESS_EVERY_S or (done == rows and told_s > began_s):
            told_s = now_s
            end = "\n" if done == rows else ""
            sys.stderr.write(f"\r{done} of {rows} samples, {done / (now_s - began_s):,.0f} a second{end}")
            sys.stderr.flush()

    return told
