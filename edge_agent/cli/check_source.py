"""The check's look at the data source: does it give samples that fit the bundle."""

import time

from edge_agent.cli.check_broker import look_at_broker
from edge_agent.cli.finding import Finding
from edge_agent.config import AgentSettings, MqttSourceSection
from edge_agent.runtime.parts import make_source
from edge_agent.sources.mqtt_json import MqttJsonSource
from edge_agent.sources.source import Source
from edge_agent.wire.manifest import Manifest

READ_S = 0.5


def look_at_source(settings: AgentSettings, manifest: Manifest, wait_s: float) -> Finding:
    """Whether a sample comes within ``wait_s``.

    Raises:
        ConfigError: a file is absent or does not fit the bundle's inputs (named).
    """
    section = settings.source
    if not isinstance(section, MqttSourceSection):
        source = make_source(section, manifest, settings.gateway.id, first_pass=0)
        if _gives(source, wait_s):
            return Finding("source", True, f"{section.path} gives samples that fit the bundle")
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
    if _gives(live, wait_s):
        return Finding("source", True, f"samples on {section.samples_topic!r} fit the bundle")
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


def _gives(source: Source, wait_s: float) -> bool:
    try:
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            read = source.read(READ_S)
            if read is None:
                return False
            if read.samples is not None:
                return True
        return False
    finally:
        source.close()
