"""A plant: samples and their labels, published on its own broker."""

import json
import queue
import threading
from types import TracebackType
from typing import Self

import numpy as np

from edge_agent.errors import TransientError
from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from tests.broker import Mosquitto
from tests.e2e.toy import Drift, draw

SAMPLES_TOPIC = "plant/samples"
LABELS_TOPIC = "plant/labels"
PERIOD_S = 0.05
SAMPLES_A_PERIOD = 5


class Plant:
    """Publishes toy samples, each with its label, until the context ends; from :meth:`drifts` on, drifted ones."""

    def __init__(self, broker: Mosquitto) -> None:
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(10_000)
        settings = BrokerSettings(broker.host, broker.port)
        self._session = MqttSession(settings, "plant", clean_start=True, session_expiry_s=0, inbox=self._inbox)
        self._drift = Drift("none")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plant", daemon=True)

    def drifts(self) -> None:
        """From here on a sensor is remounted."""
        self._drift = Drift("permuted")

    def _run(self) -> None:
        rng = np.random.default_rng(5)
        number = 0
        while not self._ended.wait(PERIOD_S):
            while not self._inbox.empty():
                self._inbox.get_nowait()
            x, label = draw(rng, SAMPLES_A_PERIOD)
            for row, value in zip(self._drift.apply(x), label, strict=True):
                sample = {"id": f"s{number}", "time": number * PERIOD_S, "features": {"x": row.tolist()}}
                self._publish(SAMPLES_TOPIC, sample)
                self._publish(LABELS_TOPIC, {"id": f"s{number}", "value": int(value)})
                number += 1

    def _publish(self, topic: str, message: dict[str, object]) -> None:
        try:
            self._session.publish(topic, json.dumps(message).encode())
        except TransientError:
            return  # the plant does not wait for its broker

    def __enter__(self) -> Self:
        self._session.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(10)
        self._session.stop(2.0)
