"""Serving and nothing else, while the disk under the data folder, or the root of trust, cannot be used.

A gateway that starts on a full or read-only disk has no records, reports, rounds or updates to
offer; its model it has, and it serves it.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from edge_agent.config import AgentSettings
from edge_agent.errors import EdgeError, StorageError
from edge_agent.link.durable import remove_file, write_file
from edge_agent.link.interrupt import stop_on_signals
from edge_agent.link.service import ServiceNotifier, Watchdog
from edge_agent.model.bundle import WEIGHTS, Bundle, load_bundle
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import confirm_start, startup
from edge_agent.ota.weights_store import FIRST_VERSION, POINTER_FILE, Loaded, WeightsStore
from edge_agent.runtime.loaded import keep_what_is_loaded, let_in_soon
from edge_agent.runtime.parts import make_sink, make_source
from edge_agent.runtime.pipeline import Pipeline
from edge_agent.serving.server import ModelServer
from edge_agent.wire.release import ROOT_COHORT

LOOK_S = 0.5
PROBE_EVERY_S = 10.0
PROBE_BYTES = 1024 * 1024
STOP_S = 1.5
MODELS_FOLDER = "models"
_PROBE = "space.probe"
_log = structlog.get_logger(__name__)


def serve_alone(
    settings: AgentSettings, problem: EdgeError, *, mended: Callable[[], bool], probe_every_s: float = PROBE_EVERY_S
) -> bool:
    """Serve until SIGTERM, or until what was wrong is mended.

    Args:
        problem: what keeps the whole agent from starting.
        mended: whether that is over; asked now and then.

    Returns:
        Whether it is over: the whole agent should be started.

    Raises:
        DataError: not even the provisioned bundle can be read.
        ConfigError: the source or the sink cannot be made.
    """
    loaded = _model(settings)
    slot = loaded.slot
    server = ModelServer(loaded.bundle, loaded.weights, slot.weights, slot.version, slot.cohort)
    source = make_source(settings.source, loaded.bundle.manifest, settings.gateway.id, first_pass=0)
    sink = make_sink(settings)
    pipeline = Pipeline(source, server, sink)
    stopping = threading.Event()
    stop_on_signals(stopping)
    sink.start()
    pipeline.start()
    _log.error("serving_alone", problem=problem.problem, hint=problem.hint, weights=slot.weights)
    service = ServiceNotifier.from_environment(os.environ)
    watchdog = Watchdog(service, {"pipeline": pipeline.pulse})
    service.ready(f"serving alone: {problem.problem}")
    keep_what_is_loaded()
    let_in_soon()
    try:
        return _until_mended(mended, pipeline, watchdog, stopping, probe_every_s)
    finally:
        service.stopping()
        pipeline.stop(STOP_S)
        sink.stop(STOP_S)
        _log.info("served_alone", samples=pipeline.served_samples)


def has_served(data_dir: Path) -> bool:
    """Whether an agent has ever served from this data folder."""
    return (data_dir / MODELS_FOLDER / POINTER_FILE).exists()


def is_usable(data_dir: Path) -> bool:
    """Whether the folder takes a file of a megabyte."""
    probe = data_dir / _PROBE
    try:
        write_file(probe, bytes(PROBE_BYTES))
        remove_file(probe)
    except StorageError:
        with suppress(StorageError):
            remove_file(probe)
        return False
    return True


def _until_mended(
    mended: Callable[[], bool], pipeline: Pipeline, watchdog: Watchdog, stopping: threading.Event, probe_every_s: float
) -> bool:
    looks = 0
    while not stopping.wait(LOOK_S) and pipeline.alive:
        watchdog.look()
        looks += 1
        if looks * LOOK_S >= probe_every_s:
            looks = 0
            if mended():
                return True
    return not stopping.is_set()


def _model(settings: AgentSettings) -> Loaded:
    """What the pointer names, if that can be read; else what the gateway came with."""
    provisioned = load_bundle(settings.gateway.bundle)
    try:
        store = WeightsStore(settings.gateway.data_dir / MODELS_FOLDER, provisioned)
    except StorageError as error:
        _log.error("weights_store_unusable", problem=error.problem)
        return _last_resort(provisioned)
    loaded = startup(store).loaded
    with suppress(StorageError):  # what cannot be written was not counted either
        confirm_start(store)
    return loaded


def _last_resort(provisioned: Bundle) -> Loaded:
    digest = provisioned.manifest.files[WEIGHTS]
    slot = Slot(bundle=provisioned.digest, weights=digest, cohort=ROOT_COHORT, version=FIRST_VERSION)
    return Loaded(slot, provisioned, provisioned.initial_weights())
