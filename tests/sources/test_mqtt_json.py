import json
import queue
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import ConfigError, WireError
from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.sources.mqtt_json import MqttJsonSource, read_label, read_sample, topic_matches
from edge_agent.wire.manifest import TensorSpec
from tests.broker import Mosquitto

INPUTS = [
    TensorSpec(name="x", dtype="float32", shape=["n", 2]),
    TensorSpec(name="k", dtype="int64", shape=["n"]),
]
SAMPLE = {"id": "a", "time": 1.5, "features": {"x": [1, 2.5], "k": 3}, "group": "g", "holdout": True}
WAIT_S = 60.0


def _payload(**changes: object) -> bytes:
    return json.dumps(SAMPLE | changes).encode()


def test_the_documents_examples_are_read() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "data.md").read_text(encoding="utf-8")
    inputs = [TensorSpec(name="x", dtype="float32", shape=["n", 3])]
    examples = re.findall(r"```json (sample|label)\n(.*?)\n```", page, re.DOTALL)
    samples = [read_sample(text.encode(), inputs) for kind, text in examples if kind == "sample"]
    labels = [read_label(text.encode()) for kind, text in examples if kind == "label"]
    assert [sample.holdout for sample in samples] == [False, True, False]
    assert [sample.task for sample in samples] == [None, None, "press"]
    assert [label.id for label in labels] == [samples[1].id]


def test_a_sample_is_read_into_the_models_types() -> None:
    sample = read_sample(_payload(), INPUTS)
    assert (sample.id, sample.time_s, sample.group, sample.holdout) == ("a", 1.5, "g", True)
    assert sample.features["x"].tolist() == [1.0, 2.5]
    assert sample.features["x"].dtype == np.float32
    assert sample.features["k"].dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": ""}, "id"),
        ({"id": "a" * 129}, "id"),
        ({"time": None}, "time"),
        ({"time": 1796006400250.0}, "time"),
        ({"time": -1e300}, "time"),
        ({"features": {"x": [1, 2]}}, "features.k: missing"),
        ({"features": {"x": [1], "k": 1}}, "features.x: shape"),
        ({"features": {"x": [[1], [1, 2]], "k": 1}}, "features.x"),
        ({"features": {"x": ["1", "2"], "k": 1}}, "features.x: numbers"),
        ({"features": {"x": [None, 1], "k": 1}}, "features.x: numbers"),
        ({"features": []}, "features"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused_by_name(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        read_sample(_payload(**changes), INPUTS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_give_a_message_or_a_wire_error(payload: bytes) -> None:
    for read in (lambda data: read_sample(data, INPUTS), read_label):
        try:
            read(payload)
        except WireError:
            continue


@given(JSON, JSON)
def test_arbitrary_features_give_a_sample_or_a_wire_error(x: object, k: object) -> None:
    try:
        sample = read_sample(_payload(features={"x": x, "k": k}), INPUTS)
    except WireError:
        return
    assert (sample.features["x"].shape, sample.features["k"].shape) == ((2,), ())


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+/c", "a/b/c", True),
        ("a/#", "a/b/c", True),
        ("#", "x", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(topic_filter: str, topic: str, matches: bool) -> None:
    assert topic_matches(topic_filter, topic) is matches


def test_one_topic_for_both_is_refused() -> None:
    with pytest.raises(ConfigError, match="both 'p'"):
        MqttJsonSource(BrokerSettings("127.0.0.1", 1), "c", "p", "p", INPUTS)


def _settings(broker: Mosquitto) -> BrokerSettings:
    return BrokerSettings(broker.host, broker.port)


@contextmanager
def _plant(broker: Mosquitto) -> Iterator[MqttSession]:
    inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
    session = MqttSession(_settings(broker), "plant", clean_start=True, session_expiry_s=0, inbox=inbox)
    session.start()
    try:
        yield session
    finally:
        session.stop(5.0)


def _read_until(source: MqttJsonSource, samples: int, labels: int) -> tuple[list[SampleBatch], list[Label]]:
    batches: list[SampleBatch] = []
    found: list[Label] = []
    deadline_s = time.monotonic() + WAIT_S
    while sum(len(batch.ids) for batch in batches) < samples or len(found) < labels:
        assert time.monotonic() < deadline_s, (batches, found)
        read = source.read(0.1)
        assert read is not None
        batches += [read.samples] if read.samples is not None else []
        found += read.labels
    return batches, found


def _connect(source: MqttJsonSource) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not source.connected:
        assert time.monotonic() < deadline_s
        source.read(0.05)
    source.read(0.3)


def test_samples_and_labels_come_from_their_topics_and_bad_ones_are_counted(mosquitto: Mosquitto) -> None:
    source = MqttJsonSource(_settings(mosquitto), "gw1.source", "plant/+/samples", "plant/labels", INPUTS)
    _connect(source)
    with _plant(mosquitto) as plant:
        for number in range(100):
            plant.publish("plant/line1/samples", _payload(id=f"s{number}"))
        plant.publish("plant/line1/samples", b"not json")
        plant.publish("plant/labels", b'{"id": "s7", "value": "high"}')
        plant.publish("plant/labels", b'{"id": "s7", "value": 2}')
        batches, labels = _read_until(source, 100, 1)
    assert [name for batch in batches for name in batch.ids] == [f"s{number}" for number in range(100)]
    assert batches[0].features["x"].shape == (len(batches[0].ids), 2)
    assert labels == [Label("s7", 2.0)]
    assert source.bad_messages == 2
    source.close()
    assert source.read(0.0) is None


def test_what_comes_while_the_agent_restarts_is_not_lost(mosquitto: Mosquitto) -> None:
    first = MqttJsonSource(_settings(mosquitto), "gw1.source", "samples", "labels", INPUTS)
    _connect(first)
    first.close()
    with _plant(mosquitto) as plant:
        plant.publish("samples", _payload(id="meanwhile"))
        plant.publish("labels", b'{"id": "meanwhile", "value": 1}')
    second = MqttJsonSource(_settings(mosquitto), "gw1.source", "samples", "labels", INPUTS)
    batches, labels = _read_until(second, 1, 1)
    assert batches[0].ids == ["meanwhile"]
    assert labels == [Label("meanwhile", 1.0)]
    second.close()


def test_an_absent_broker_gives_empty_reads_and_is_found_when_it_comes(mosquitto: Mosquitto) -> None:
    mosquitto.stop()
    source = MqttJsonSource(_settings(mosquitto), "gw1.source", "samples", "labels", INPUTS)
    read = source.read(0.2)
    assert read is not None
    assert (read.samples, read.labels) == (None, [])
    mosquitto.start()
    _connect(source)
    with _plant(mosquitto) as plant:
        plant.publish("samples", _payload())
        _read_until(source, 1, 0)
    source.close()
