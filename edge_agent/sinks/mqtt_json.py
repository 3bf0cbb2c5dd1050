"""Predictions as JSON over MQTT."""

import queue

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import EdgeError
from edge_agent.link.events import Published, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.sinks.sink import prediction_lines

INBOX_EVENTS = 4096

_log = structlog.get_logger(__name__)


class MqttJsonSink:
    """Publishes one message a sample, QoS 1, to a broker of its own.

    Nothing is kept on disk: what the session's bounded queue cannot take while the broker is away
    is dropped and counted, as is what the broker refuses.

    Args:
        settings: of the broker.
        client_id: unique on it.
        topic: where predictions go.
    """

    def __init__(self, settings: BrokerSettings, client_id: str, topic: str) -> None:
        self._topic = topic
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(INBOX_EVENTS)
        self._session = MqttSession(settings, client_id, clean_start=True, session_expiry_s=0, inbox=self._inbox)
        self._refusing = False
        self.dropped = 0

    @property
    def alive(self) -> bool:
        """Whether the network thread lives."""
        return self._session.alive

    @property
    def failure(self) -> BaseException | None:
        """Why the network thread died."""
        return self._session.failure

    def start(self) -> None:
        """Begin to connect."""
        self._session.start()

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        """Queue a message a sample."""
        self._settle()
        for line in prediction_lines(ids, times, outputs, weights, task):
            self._publish(line)

    def stop(self, timeout_s: float) -> None:
        """Send what is queued, as far as the time allows, and disconnect."""
        self._session.stop(timeout_s)
        self._settle()

    def _publish(self, line: bytes) -> None:
        try:
            self._session.publish(self._topic, line)
        except EdgeError as error:
            self.dropped += 1
            if not self._refusing:
                _log.warning("sink_refused", topic=self._topic, problem=str(error))
            self._refusing = True
        else:
            self._refusing = False

    def _settle(self) -> None:
        while True:
            try:
                event = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, Published) and not event.ok:
                self.dropped += 1
