"""``edge-agent check``: what would go wrong, before it does, and what to do about it."""

import queue
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.config import AgentSettings, MqttSourceSection, ReplaySourceSection, load_settings
from edge_agent.errors import EdgeError
from edge_agent.link.durable import make_directory, read_file, remove_file, write_file
from edge_agent.link.events import Connected, Disconnected, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.runtime.parts import make_source

BROKER_WAIT_S = 8.0
FREE_BYTES_NEEDED = 256 * 1024 * 1024
SOURCE_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what, whether it is right, what was seen, and the remedy if it is not."""

    what: str
    ok: bool
    saw: str
    remedy: str = ""


def findings(config: Path) -> Iterator[Finding]:
    """Look at everything an agent needs; a wrong settings file ends the look."""
    try:
        settings = load_settings(config)
    except EdgeError as error:
        yield Finding("settings", False, error.problem, error.hint)
        return
    yield Finding("settings", True, f"gateway {settings.gateway.id!r} of fleet {settings.gateway.fleet!r}")
    yield _guarded("disk", lambda: _disk(settings.gateway.data_dir))
    bundle: list[Bundle] = []
    yield _guarded("bundle", lambda: _bundle(settings, bundle))
    yield _guarded("trust root", lambda: _root(settings))
    yield _broker("broker", settings.broker.settings(), f"{settings.gateway.id}.check")
    if bundle:
        yield _guarded("source", lambda: _source(settings, bundle[0]))


def _guarded(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except EdgeError as error:
        return Finding(what, False, error.problem, error.hint or "see the problem above")


def _disk(data_dir: Path) -> Finding:
    make_directory(data_dir)
    probe = data_dir / ".check"
    write_file(probe, b"writable")
    remove_file(probe)
    free = shutil.disk_usage(data_dir).free
    saw = f"{data_dir} is writable, {free // 2**20} MiB free"
    return Finding("disk", free >= FREE_BYTES_NEEDED, saw, f"free at least {FREE_BYTES_NEEDED // 2**20} MiB")


def _bundle(settings: AgentSettings, out: list[Bundle]) -> Finding:
    bundle = load_bundle(settings.gateway.bundle)
    weights = bundle.initial_weights()
    features = {
        spec.name: np.zeros([2 if isinstance(size, str) else size for size in spec.shape], spec.dtype)
        for spec in bundle.manifest.inputs
    }
    InferenceModel(bundle, weights).run(features)
    for graph in bundle.manifest.training:
        TrainingStep(bundle, graph.name, weights)
    out.append(bundle)
    trains = ", ".join(graph.name for graph in bundle.manifest.training) or "nothing"
    saw = f"{bundle.manifest.name!r} ({bundle.digest[:12]}) predicts; training graphs: {trains}"
    monitored = bool(bundle.manifest.monitors)
    return Finding("bundle", monitored, saw, "it has no calibrated monitor: build it with calibration data")


def _root(settings: AgentSettings) -> Finding:
    path = settings.gateway.root
    read_file(path, cap_bytes=1024 * 1024)
    read_file(settings.gateway.floors, cap_bytes=1024 * 1024)
    return Finding("trust root", True, f"{path} and {settings.gateway.floors.name} are there")


def _broker(what: str, broker: BrokerSettings, client_id: str) -> Finding:
    place = f"{broker.host}:{broker.port}"
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    session = MqttSession(broker, client_id, clean_start=True, session_expiry_s=0, inbox=inbox)
    session.start()
    reason = "no answer"
    deadline = time.monotonic() + BROKER_WAIT_S
    try:
        while time.monotonic() < deadline:
            try:
                event = inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(event, Connected):
                return Finding(what, True, f"{place} accepts us" + ("" if broker.tls else " (without TLS)"))
            if isinstance(event, Disconnected):
                reason = event.reason
                break
    finally:
        session.stop(2.0)
    return Finding(
        what, False, f"{place}: {reason}", "check [broker] host and port, that the broker runs, the firewall"
    )


def _source(settings: AgentSettings, bundle: Bundle) -> Finding:
    section = settings.source
    if isinstance(section, MqttSourceSection):
        return _broker("source", section.settings(), section.client_id or f"{settings.gateway.id}.source-check")
    source = make_source(section, bundle.manifest, settings.gateway.id, first_pass=0)
    try:
        deadline = time.monotonic() + SOURCE_WAIT_S
        while time.monotonic() < deadline:
            read = source.read(0.5)
            if read is None:
                break
            if read.samples is not None:
                return Finding("source", True, f"{_place(section)} gives samples that fit the bundle")
    finally:
        source.close()
    return Finding(
        "source", False, f"{_place(section)} gave no sample in {SOURCE_WAIT_S:.0f} s", "look at its rate and rows"
    )


def _place(section: ReplaySourceSection) -> str:
    return str(section.path)
