"""What the bridge sends to gateways; a message that the session cannot take is counted, not awaited."""

from typing import Protocol

import structlog

from edge_agent.errors import TransientError
from edge_agent.wire.codec import Message, encode

_log = structlog.get_logger(__name__)


class PublishingSession(Protocol):
    """The part of a session that sends."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Queue a message; its token."""
        ...


class Post:
    """Sends acks, grants and commands without ever blocking.

    Whatever is lost here is sent again by the rules of its kind: gateways re-send what was not
    acknowledged, grants and commands have their own back-off.

    Args:
        session: the bridge's MQTT session.
    """

    def __init__(self, session: PublishingSession) -> None:
        self._session = session
        self.refused = 0
        self.missed_clears = 0

    def send(self, topic: str, message: Message, *, retain: bool = False) -> bool:
        """Queue a message; whether the session took it."""
        return self.send_raw(topic, encode(message), retain=retain)

    def clear(self, topic: str) -> bool:
        """Remove a retained message; one that could not be is counted in ``missed_clears``."""
        taken = self.send_raw(topic, b"", retain=True)
        self.missed_clears += not taken
        return taken

    def send_raw(self, topic: str, payload: bytes, *, retain: bool) -> bool:
        """Queue bytes; whether the session took them."""
        try:
            self._session.publish(topic, payload, retain=retain)
        except TransientError as error:
            self.refused += 1
            _log.warning("message-not-queued", topic=topic, problem=error.problem)
            return False
        return True
