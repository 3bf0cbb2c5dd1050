from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.config import ReplaySourceSection, load_settings
from edge_agent.link.database import open_database
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.parts import PASSES_A_START, first_pass_of_this_start, make_sink, make_source
from edge_agent.sinks.jsonl import JsonLinesSink
from edge_agent.sinks.mqtt_json import MqttJsonSink
from edge_agent.sinks.sink import NoSink
from edge_agent.sources.mqtt_json import MqttJsonSource
from edge_agent.sources.replay import ReplaySource

LEAST = '[gateway]\nid = "gw1"\nfleet = "line1"\n'
REPLAY = '[source]\nkind = "replay"\npath = "stream.csv"\ndelay_s = 0.0\n'
MQTT = '[source]\nkind = "mqtt"\nsamples_topic = "s"\nlabels_topic = "l"\n'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", NoSink),
        ('[sink]\nkind = "jsonl"\npath = "out.jsonl"\n', JsonLinesSink),
        ('[sink]\nkind = "mqtt"\ntopic = "predictions"\n', MqttJsonSink),
    ],
)
def test_the_sink_is_the_one_that_settings_name(tmp_path: Path, text: str, kind: type) -> None:
    (tmp_path / "agent.toml").write_text(LEAST + MQTT + text)
    sink = make_sink(load_settings(tmp_path / "agent.toml"))
    assert type(sink) is kind
    sink.start()
    sink.stop(2.0)


def test_the_source_is_the_one_that_settings_name(tmp_path: Path, bundle: Bundle) -> None:
    (tmp_path / "agent.toml").write_text(LEAST + MQTT)
    source = make_source(load_settings(tmp_path / "agent.toml").source, bundle.manifest, "gw1", first_pass=0)
    assert type(source) is MqttJsonSource
    source.read(0.01)
    source.close()
    (tmp_path / "agent.toml").write_text(LEAST + REPLAY)
    (tmp_path / "stream.csv").write_text("a,b,c,d,y\n1,2,3,4,0\n5,6,7,8,2\n")
    section = load_settings(tmp_path / "agent.toml").source
    assert isinstance(section, ReplaySourceSection)
    given = section.model_copy(update={"features": {"x": ["a", "b", "c", "d"]}, "columns": {"label": "y"}})
    replay = make_source(given, bundle.manifest, "gw1", first_pass=7)
    assert type(replay) is ReplaySource
    read = replay.read(5.0)
    assert read is not None
    assert read.samples is not None
    assert read.samples.ids == ["0-7", "1-7"]
    assert [(label.id, label.value) for label in read.labels] == [("0-7", 0), ("1-7", 2)]


def test_every_start_has_its_own_range_of_passes(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        with closing(open_database(tmp_path / "agent.db")) as db:
            seen.append(first_pass_of_this_start(db))
    assert seen == [0, PASSES_A_START, 2 * PASSES_A_START]
