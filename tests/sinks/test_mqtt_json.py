import json
import queue
import time

import numpy as np

from edge_agent.link.events import Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.sinks.mqtt_json import MqttJsonSink
from tests.broker import Mosquitto

OUTPUT = np.array([[0.5, 1.5]], dtype=np.float32)
WAIT_S = 60.0


def _received(inbox: "queue.Queue[SessionEvent]", count: int) -> list[bytes]:
    payloads: list[bytes] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(payloads) < count:
        assert time.monotonic() < deadline_s, payloads
        try:
            event = inbox.get(timeout=0.1)
        except queue.Empty:
            continue
        if isinstance(event, Received):
            payloads.append(event.payload)
    return payloads


def test_predictions_reach_the_topic_also_those_from_before_the_broker_was_there(mosquitto: Mosquitto) -> None:
    settings = BrokerSettings(mosquitto.host, mosquitto.port)
    inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
    reader = MqttSession(
        settings, "reader", clean_start=True, session_expiry_s=0, inbox=inbox, subscriptions=[Subscription("out")]
    )
    reader.start()
    reader.publish("out", b"listening")
    assert _received(inbox, 1) == [b"listening"]
    sink = MqttJsonSink(settings, "gw1.sink", "out")
    sink.write(["early"], [1.0], OUTPUT, "w")
    sink.start()
    for number in range(20):
        sink.write([str(number)], [2.0], OUTPUT, "w")
    assert sink.alive
    lines = [json.loads(payload) for payload in _received(inbox, 21)]
    assert {line["id"] for line in lines} == {"early"} | {str(number) for number in range(20)}
    assert lines[0]["output"] == [0.5, 1.5]
    sink.stop(WAIT_S)
    reader.stop(WAIT_S)
    assert sink.dropped == 0


def test_without_a_broker_what_the_queue_cannot_take_is_dropped_and_counted(mosquitto: Mosquitto) -> None:
    mosquitto.stop()
    sink = MqttJsonSink(BrokerSettings(mosquitto.host, mosquitto.port), "gw1.sink", "out")
    sink.start()
    for number in range(1500):
        sink.write([str(number)], [0.0], OUTPUT, "w")
    assert 0 < sink.dropped < 1500
    sink.stop(1.0)
    deadline_s = time.monotonic() + WAIT_S
    while sink.alive:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
