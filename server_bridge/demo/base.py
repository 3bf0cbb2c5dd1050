"""What both arms start from: the base bundle, fitted by its own training graph, and the streams."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.link.durable import make_directory
from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import Epoch, FitSettings, fit_bundle
from server_bridge.demo.data import (
    MONITOR_BATCH,
    Part,
    make_stream,
    standardisation,
    windows_of,
    write_samples,
    write_stream,
)
from server_bridge.demo.net import TRAINABLE_PATTERNS, draw_net
from server_bridge.demo.plan import GatewayPlan
from server_bridge.demo.recordings import load_recordings
from server_bridge.demo.streams import StreamPlan

NAME = "motion"
EPOCHS = 20
LEARNING_RATE = 0.003
BATCH_SIZE = 32
UNTRAINED_ROWS = 2 * MONITOR_BATCH
"""The least that a monitor is calibrated on: those of the untrained net are thrown away."""


@dataclass(frozen=True, slots=True)
class Groundwork:
    """The files that both arms share.

    Attributes:
        streams: plans by gateway id.
        stream_files: what each gateway replays, by its id.
    """

    bundle: Bundle
    streams: dict[str, StreamPlan]
    stream_files: dict[str, Path]


def lay_groundwork(
    directory: Path,
    plans: tuple[GatewayPlan, ...],
    *,
    seed: int,
    rate_hz: float,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Groundwork:
    """Fit the base on every subject's fit part; write each gateway's stream.

    Raises:
        ConfigError: the recordings are not installed.
        DataError: they are not the known ones, or the net cannot be trained.
        StorageError: the directory cannot be written.
    """
    make_directory(directory)
    recordings, motions = load_recordings()
    fit = windows_of(recordings, [Part.FIT])
    held_out = windows_of(recordings, [Part.CALIBRATION])
    fit_file, calibration_file, few_file = (directory / f"{name}.npz" for name in ("fit", "calibration", "few"))
    write_samples(fit_file, fit)
    write_samples(calibration_file, held_out)
    write_samples(few_file, held_out.take(np.arange(UNTRAINED_ROWS)))
    mean, deviation = standardisation(fit)
    net = draw_net(mean, deviation, classes=len(motions), seed=seed)
    build = BuildSettings(trainable=TRAINABLE_PATTERNS, loss="cross-entropy", name=NAME, label_names=motions, seed=seed)
    build_bundle(net, few_file, build, directory / "untrained")
    settings = FitSettings(EPOCHS, seed, LEARNING_RATE, BATCH_SIZE, MONITOR_BATCH)
    bundle = fit_bundle(
        directory / "untrained", fit_file, calibration_file, settings, directory / "bundle", on_epoch=on_epoch
    )
    streams, files = {}, {}
    for plan in plans:
        stream = make_stream(plan, recordings, seed)
        streams[plan.id] = StreamPlan.of(plan, stream, rate_hz)
        files[plan.id] = directory / f"{plan.id}.npz"
        write_stream(files[plan.id], stream, rate_hz=rate_hz, seed=seed)
    return Groundwork(bundle, streams, files)
