"""From settings to parts: which source, which sink."""

from edge_agent.config import (
    AgentSettings,
    JsonLinesSinkSection,
    MqttSinkSection,
    MqttSourceSection,
    ReplaySourceSection,
)
from edge_agent.link.database import Database
from edge_agent.link.settings import TimeJudge
from edge_agent.sinks.jsonl import JsonLinesSink
from edge_agent.sinks.mqtt_json import MqttJsonSink
from edge_agent.sinks.sink import NoSink, Sink
from edge_agent.sources.csv_columns import CsvColumns
from edge_agent.sources.mqtt_json import MqttJsonSource
from edge_agent.sources.replay import ReplaySource
from edge_agent.sources.source import Source
from edge_agent.wire.manifest import Manifest

PASSES_A_START = 1_000_000
_STARTS = ("CREATE TABLE starts (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL)",)


def make_source(
    section: ReplaySourceSection | MqttSourceSection,
    manifest: Manifest,
    gateway: str,
    *,
    first_pass: int,
    judge: TimeJudge | None = None,
) -> Source:
    """The source that the settings name.

    Args:
        first_pass: passes of a replay are numbered from here, so that sample ids stay unique.
        judge: of the dates that a broker with TLS shows.

    Raises:
        ConfigError: a file is absent or does not fit the bundle's inputs (named).
    """
    if isinstance(section, MqttSourceSection):
        return MqttJsonSource(
            section.settings().judged_by(judge),
            section.client_id or f"{gateway}.source",
            section.samples_topic,
            section.labels_topic,
            manifest.inputs,
        )
    return ReplaySource(
        section.path,
        manifest.inputs,
        rate_hz=section.rate_hz,
        loop=section.loop,
        loop_from_row=section.loop_from_row,
        batch_size=section.batch_size,
        delay_s=section.delay_s,
        first_pass=first_pass,
        columns=CsvColumns(features=section.features, keys={str(key): name for key, name in section.columns.items()}),
    )


def make_sink(settings: AgentSettings, *, judge: TimeJudge | None = None) -> Sink:
    """The sink that the settings name."""
    section = settings.sink
    if isinstance(section, JsonLinesSinkSection):
        return JsonLinesSink(section.path, max_bytes=section.max_bytes)
    if isinstance(section, MqttSinkSection):
        broker = section.settings().judged_by(judge)
        return MqttJsonSink(broker, section.client_id or f"{settings.gateway.id}.sink", section.topic)
    return NoSink()


def first_pass_of_this_start(database: Database) -> int:
    """Counts starts; gives each its own range of replay passes."""
    database.define("starts", _STARTS)
    with database.transaction():
        database.execute("INSERT INTO starts VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET count = count + 1")
        return int(database.query("SELECT count FROM starts")[0][0]) * PASSES_A_START
