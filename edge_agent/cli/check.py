"""``edge-agent check``: what would go wrong, before it does, and what to do about it."""

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from edge_agent.cli.check_broker import look_at_broker, look_at_identity
from edge_agent.cli.check_rights import look_at_rights
from edge_agent.cli.check_source import look_at_source
from edge_agent.cli.finding import Finding, moment
from edge_agent.config import AgentSettings, JsonLinesSinkSection, load_settings
from edge_agent.errors import EdgeError, StorageError, WireError
from edge_agent.link.durable import make_directory, read_file, read_json, remove_file, write_file
from edge_agent.link.settings import CLOCK_FAR_AHEAD_S
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.ota.weights_store import BUNDLES_BUDGET, WEIGHTS_BUDGET
from edge_agent.runtime.instance import STATUS_FILE
from edge_agent.runtime.provisioned import provisioned_floors, provisioned_root
from edge_agent.training.suited import unsuited
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.provision import read_floors
from edge_agent.wire.rights import gateway_identities
from edge_agent.wire.tasks import task_names

SPARE_BYTES = 64 * 2**20
"""Write-ahead logs, the log of a worker, an update that waits."""

ROW_BYTES = 400
"""What a stored sample takes besides its features: 170 with four classes (measured), more with more or longer ids."""

ROOT_CAP_BYTES = 1024 * 1024


def findings(config: Path, *, source_wait_s: float) -> Iterator[Finding]:
    """Look at everything an agent needs; a wrong settings file ends the look.

    Args:
        config: the settings file.
        source_wait_s: how long the source may be silent.
    """
    try:
        settings = load_settings(config)
    except EdgeError as error:
        yield Finding("settings", False, error.problem, error.hint)
        return
    yield Finding("settings", True, f"gateway {settings.gateway.id!r} of fleet {settings.gateway.fleet!r}")
    bundle: list[Bundle] = []
    yield _guarded("bundle", lambda: _bundle(settings, bundle))
    yield _guarded("disk", lambda: _disk(settings, bundle[0] if bundle else None))
    yield _guarded("trust root", lambda: _root(settings))
    floor_s = time_floor_s(settings)
    yield look_at_clock(floor_s)
    broker, identities = settings.broker.settings(), gateway_identities(settings.gateway.id)
    if broker.tls is not None:
        yield look_at_identity(broker.tls, identities, max(time.time(), floor_s))
    reached = look_at_broker("broker", broker, f"{settings.gateway.id}.check", floor_s)
    yield reached
    if reached.ok:
        yield _guarded("rights", lambda: look_at_rights(settings, floor_s))
    if bundle:
        yield _guarded("source", lambda: look_at_source(settings, bundle[0].manifest, source_wait_s))


def _guarded(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except EdgeError as error:
        return Finding(what, False, error.problem, error.hint or "see the problem above")


def _disk(settings: AgentSettings, bundle: Bundle | None) -> Finding:
    data_dir = settings.gateway.data_dir
    make_directory(data_dir)
    probe = data_dir / ".check"
    write_file(probe, b"writable")
    remove_file(probe)
    free = shutil.disk_usage(data_dir).free
    missing = most_bytes(settings, bundle) - sum(file.stat().st_size for file in data_dir.rglob("*") if file.is_file())
    saw = (
        f"{data_dir} is writable, {free // 2**20} MiB free; these settings may take {max(0, missing) // 2**20} MiB more"
    )
    remedy = "free space, or lower [outbox] max_bytes, [samples] max_samples or [sink] max_bytes"
    return Finding("disk", free >= missing, saw, remedy)


def most_bytes(settings: AgentSettings, bundle: Bundle | None) -> int:
    """What the agent's files may take by its caps: outbox, samples, models, sink."""
    total = SPARE_BYTES + settings.outbox.max_bytes
    if isinstance(settings.sink, JsonLinesSinkSection):
        total += 2 * settings.sink.max_bytes
    if bundle is None:
        return total
    weights = sum(4 * math.prod(spec.shape) for spec in bundle.manifest.trainable)
    files = sum((bundle.path / name).stat().st_size for name in bundle.manifest.files)
    total += (WEIGHTS_BUDGET + 2) * weights + BUNDLES_BUDGET * files  # and the weights in work: base and update
    return total + settings.samples.max_samples * (ROW_BYTES + _sample_bytes(bundle.manifest))


def _sample_bytes(manifest: Manifest) -> int:
    return sum(
        np.dtype(spec.dtype).itemsize * math.prod(size for size in spec.shape[1:] if isinstance(size, int))
        for spec in manifest.inputs
    )


def _bundle(settings: AgentSettings, out: list[Bundle]) -> Finding:
    bundle = load_bundle(settings.gateway.bundle)
    out.append(bundle)
    weights = bundle.initial_weights()
    features = {
        spec.name: np.zeros([2 if isinstance(size, str) else size for size in spec.shape], spec.dtype)
        for spec in bundle.manifest.inputs
    }
    for task in task_names(bundle.manifest) or (None,):
        InferenceModel(bundle, weights, task=task).run(features)
    for graph in bundle.manifest.training:
        step = TrainingStep(bundle, graph.name, weights)
        if graph.series is not None:
            step.open_series()
    trains = ", ".join(graph.name for graph in bundle.manifest.training) or "nothing"
    saw = f"{bundle.manifest.name!r} ({bundle.digest[:12]}) predicts; training graphs: {trains}"
    if settings.adaptation.online and (why := unsuited(bundle, settings.adaptation.graph)) is not None:
        remedy = "build it with --label-free entropy, name its graph in [adaptation] graph, or set online = false"
        return Finding("bundle", False, f"[adaptation] online = true, but it cannot be followed: {why}", remedy)
    monitored = bool(bundle.manifest.monitors)
    return Finding("bundle", monitored, saw, "it has no calibrated monitor: build it with calibration data")


def _root(settings: AgentSettings) -> Finding:
    path, floors = settings.gateway.root, settings.gateway.floors
    provisioned_root(path)
    signed_s = provisioned_floors(floors).created_s
    return Finding("trust root", True, f"{path} and {floors.name} are there, of the release of {moment(signed_s)}")


def time_floor_s(settings: AgentSettings) -> float:
    """The latest time that has surely passed: as provisioned, or as the agent's own status last said it."""
    known = [0.0]
    with suppress(StorageError, WireError):  # the trust root's finding says it
        known.append(read_floors(read_file(settings.gateway.floors, cap_bytes=ROOT_CAP_BYTES)).created_s)
    with suppress(StorageError, KeyError, TypeError, ValueError):  # no agent has run here yet
        status = read_json(settings.gateway.data_dir / STATUS_FILE)
        known.append(float(status["clock"]["floor_s"]) if isinstance(status, dict) else 0.0)
    return max(known)


def look_at_clock(floor_s: float) -> Finding:
    """Whether the clock can be right, by the last signed time."""
    now_s = time.time()
    remedy = "set the clock (`timedatectl set-ntp true`); until then the agent serves, and goes by the signed time"
    saw = f"the clock says {moment(now_s)}"
    if now_s < floor_s:
        return Finding("clock", False, f"{saw}, but at {moment(floor_s)} a release was signed", remedy)
    if floor_s and now_s > floor_s + CLOCK_FAR_AHEAD_S:
        return Finding("clock", False, f"{saw}, ten years and more after the last release ({moment(floor_s)})", remedy)
    return Finding("clock", True, saw)
