"""The check's look at the data source: does it give samples that fit the bundle."""

import time

from edge_agent.cli.check_broker import look_at_broker
from edge_agent.cli.finding import Finding
from edge_agent.config import AgentSettings, MqttSourceSection
from edge_agent.runtime.parts import make_source
from edge_agent.samples.record import Label
from edge_agent.samples.tasks import by_task
from edge_agent.sources.mqtt_json import MqttJsonSource
from edge_agent.sources.source import Source, SourceBatch
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tasks import task_classes, task_names

READ_S = 0.5


def look_at_source(settings: AgentSettings, manifest: Manifest, wait_s: float) -> Finding:
    """Whether a sample comes within ``wait_s``, of a task of the bundle, and no label with it that is no class.

    Raises:
        ConfigError: a file is absent or does not fit the bundle's inputs (named).
    """
    section = settings.source
    if not isinstance(section, MqttSourceSection):
        source = make_source(section, manifest, settings.gateway.id, first_pass=0)
        if (read := _first(source, wait_s)) is not None:
            return _judged(read, manifest, f"{section.path} gives samples that fit the bundle")
        saw = f"{section.path} is silent: no sample in {wait_s:g} s"
        return Finding(
            "source", False, saw, "look at [source] rate_hz and the file's rows; --source-wait-s waits longer"
        )
    client_id = f"{section.client_id or settings.gateway.id}.check"
    reached = look_at_broker("source", section.settings(), client_id, 0.0)
    if not reached.ok:
        return reached
    live = MqttJsonSource(
        section.settings(), client_id, section.samples_topic, section.labels_topic, manifest.inputs, session_expiry_s=0
    )
    if (read := _first(live, wait_s)) is not None:
        return _judged(read, manifest, f"samples on {section.samples_topic!r} fit the bundle")
    if live.bad_messages:
        saw = f"{live.bad_messages} messages on {section.samples_topic!r} do not fit, the last: {live.last_problem}"
        return Finding(
            "source",
            False,
            saw,
            'send samples {"id", "time", "features": {input: list}} and labels {"id", "value"} (docs/data.md)',
        )
    saw = f"{section.samples_topic!r} at {section.host}:{section.port} is silent: no message in {wait_s:g} s"
    remedy = (
        "check [source] samples_topic, what publishes there, and our right to read it; --source-wait-s waits longer"
    )
    return Finding("source", False, saw, remedy)


def _judged(read: SourceBatch, manifest: Manifest, fit: str) -> Finding:
    problem = misfit(read, manifest)
    if problem:
        return Finding("source", False, problem, "correct what gives the samples and labels (docs/data.md)")
    return Finding("source", True, fit)


def misfit(read: SourceBatch, manifest: Manifest) -> str:
    """A task that the bundle does not have, or a label that is no class of any task; empty: neither."""
    if read.samples is not None:
        _, unknown = by_task(read.samples, task_names(manifest))
        for task, ids in unknown.items():
            return f"sample {ids[0]!r} is of task {task!r}, the bundle has {', '.join(task_names(manifest))}"
    if manifest.classes is None:
        return ""
    classes = max(manifest.classes, *task_classes(manifest).values(), 0)
    for label in read.labels:
        number = float(label.value)
        if number != manifest.ignored_label and not (number.is_integer() and 0 <= number < classes):
            return f"label {label.value:g} of sample {label.id!r} is no class, 0..{classes - 1} is needed"
    return ""


def _first(source: Source, wait_s: float) -> SourceBatch | None:
    """The first samples, and the labels that came until then; None: no sample came."""
    labels: list[Label] = []
    try:
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            read = source.read(READ_S)
            if read is None:
                return None
            labels += read.labels
            if read.samples is not None:
                return SourceBatch(read.samples, labels)
        return None
    finally:
        source.close()
