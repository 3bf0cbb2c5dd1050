"""Live samples and labels as JSON over MQTT."""

import queue
import time
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import structlog
from numpy.typing import NDArray
from pydantic import Field

from edge_agent.errors import ConfigError, TransientError, WireError
from edge_agent.link.event_queue import EventQueue
from edge_agent.link.events import Disconnected, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.samples.record import TIME_LIMIT_S, FeatureArrays, Label, Sample, SampleBatch
from edge_agent.sources.source import SourceBatch
from edge_agent.wire.codec import Finite, Name, WireModel, decode
from edge_agent.wire.manifest import TaskName, TensorSpec

MESSAGE_CAP_BYTES = 1024 * 1024
LABEL_CAP_BYTES = 4096
INBOX_MESSAGES = 1000
READ_MESSAGES = 64
SESSION_EXPIRY_S = 86_400
STOP_TIMEOUT_S = 2.0

_log = structlog.get_logger(__name__)


class SampleMessage(WireModel):
    """``{"id", "time", "features": {input: nested list}, "group", "holdout", "task"}``; the last three are optional."""

    id: Name
    time: Annotated[Finite, Field(gt=-TIME_LIMIT_S, lt=TIME_LIMIT_S)]
    features: Annotated[dict[str, Any], Field(max_length=32)]
    group: Name | None = None
    holdout: bool = False
    task: TaskName | None = None


class LabelMessage(WireModel):
    """``{"id", "value"}``."""

    id: Name
    value: Finite


class MqttJsonSource:
    """Subscribes to a samples topic and a labels topic, on a broker of its own.

    The session outlives a restart of the agent, so that the broker keeps what comes meanwhile. A
    bad message is counted, logged by name and dropped. When the agent does not keep up, the
    broker is made to wait (the inbox is bounded).

    Args:
        settings: of the plant's broker.
        client_id: unique on that broker, and the same after a restart.
        samples_topic, labels_topic: filters; a message of the samples topic is a sample.
        inputs: the model's.
        session_expiry_s: how long the broker keeps what comes while we are away; 0: nothing.

    Raises:
        ConfigError: both topics are the same.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        client_id: str,
        samples_topic: str,
        labels_topic: str,
        inputs: Sequence[TensorSpec],
        *,
        session_expiry_s: int = SESSION_EXPIRY_S,
    ) -> None:
        if samples_topic == labels_topic:
            raise ConfigError(f"[source] samples_topic and labels_topic are both {samples_topic!r}", "give two topics")
        self._samples_topic = samples_topic
        self._labels_topic = labels_topic
        self._inputs = list(inputs)
        self._inbox = EventQueue(INBOX_MESSAGES)
        self._session = MqttSession(
            settings,
            client_id,
            clean_start=session_expiry_s == 0,
            session_expiry_s=session_expiry_s,
            inbox=self._inbox,
            subscriptions=[Subscription(samples_topic), Subscription(labels_topic)],
        )
        self._started = False
        self._closed = False
        self.bad_messages = 0
        self.last_problem = ""

    @property
    def connected(self) -> bool:
        """Whether the plant's broker is there."""
        return self._session.connected

    def read(self, timeout_s: float) -> SourceBatch | None:
        """What came within ``timeout_s``, at most 64 messages; returns as soon as there is something.

        Raises:
            TransientError: the MQTT thread has ended.
        """
        if self._closed:
            return None
        if not self._started:
            self._session.start()
            self._started = True
        samples: list[Sample] = []
        labels: list[Label] = []
        for event in self._events(timeout_s):
            if isinstance(event, Received):
                self._take(event, samples, labels)
            elif isinstance(event, Disconnected):
                _log.warning("source_disconnected", reason=event.reason, taken_over=event.taken_over)
        if not samples and not labels and not self._session.alive and not self._closed:
            raise TransientError("the MQTT source's network thread has ended", str(self._session.failure or ""))
        return SourceBatch(SampleBatch.of(samples) if samples else None, labels)

    def close(self) -> None:
        """End the session's thread; the broker keeps the subscriptions."""
        self._closed = True
        if self._started:
            self._session.stop(STOP_TIMEOUT_S)

    def _events(self, timeout_s: float) -> list[SessionEvent]:
        """Wait for the first message; then whatever else is there."""
        events: list[SessionEvent] = []
        deadline_s = time.monotonic() + timeout_s
        while len(events) < READ_MESSAGES:
            left_s = deadline_s - time.monotonic()
            waits = left_s > 0 and not any(isinstance(event, Received) for event in events)
            try:
                events.append(self._inbox.get(timeout=left_s) if waits else self._inbox.get_nowait())
            except queue.Empty:
                break
        return events

    def _take(self, message: Received, samples: list[Sample], labels: list[Label]) -> None:
        try:
            if topic_matches(self._samples_topic, message.topic):
                samples.append(read_sample(message.payload, self._inputs))
            elif topic_matches(self._labels_topic, message.topic):
                labels.append(read_label(message.payload))
        except WireError as error:
            self.bad_messages += 1
            self.last_problem = error.problem
            _log.warning("source_message_refused", topic=message.topic, problem=str(error), refused=self.bad_messages)


def read_sample(payload: bytes, inputs: Sequence[TensorSpec]) -> Sample:
    """A sample from outside.

    Raises:
        WireError: too large, malformed, or features that are not the model's inputs (named).
    """
    message = decode(SampleMessage, payload, cap_bytes=MESSAGE_CAP_BYTES)
    features: FeatureArrays = {spec.name: _feature(message.features, spec) for spec in inputs}
    return Sample(message.id, message.time, features, message.group, message.holdout, message.task)


def read_label(payload: bytes) -> Label:
    """A label from outside; whether it is a class, the store judges.

    Raises:
        WireError: too large or malformed (named).
    """
    message = decode(LabelMessage, payload, cap_bytes=LABEL_CAP_BYTES)
    return Label(message.id, message.value)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic falls under an MQTT filter with ``+`` and ``#``."""
    levels = topic.split("/")
    for place, wanted in enumerate(topic_filter.split("/")):
        if wanted == "#":
            return True
        if place >= len(levels) or wanted not in ("+", levels[place]):
            return False
    return len(levels) == len(topic_filter.split("/"))


def _feature(features: dict[str, Any], spec: TensorSpec) -> NDArray[Any]:
    if spec.name not in features:
        raise WireError("SampleMessage", f"features.{spec.name}: missing")
    try:
        raw = np.asarray(features[spec.name])
    except (ValueError, OverflowError, RecursionError):
        raise WireError("SampleMessage", f"features.{spec.name}: rows of different lengths") from None
    if raw.dtype.kind not in "biuf":
        raise WireError("SampleMessage", f"features.{spec.name}: numbers are needed")
    wanted = spec.shape[1:]
    if raw.ndim != len(wanted) or any(
        isinstance(size, int) and size != found for size, found in zip(wanted, raw.shape, strict=True)
    ):
        raise WireError("SampleMessage", f"features.{spec.name}: shape {list(raw.shape)}, {wanted} is needed")
    with np.errstate(over="ignore", invalid="ignore"):
        return raw.astype(np.dtype(spec.dtype))
