"""A gateway's presence: online after each connect and every ten minutes, offline by will or farewell."""

from dataclasses import dataclass

from edge_agent.link.events import Will
from edge_agent.link.session import MqttSession
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import Presence
from edge_agent.wire.topics import FleetTopics

REPEAT_S = 600.0


@dataclass(frozen=True, slots=True)
class PresenceVoice:
    """Speaks for one start of one gateway."""

    topics: FleetTopics
    gateway: str
    boot_id: str

    def will(self, connection: int) -> Will:
        """The will of the numbered connection: give this method to the session."""
        return Will(self.topics.presence(self.gateway), self._message(connection, online=False))

    def announce(self, session: MqttSession, connection: int) -> int:
        """Say that the gateway is online by this connection; returns the publication's token.

        Raises:
            TransientError: the session's queue is full.
        """
        return self._publish(session, self._message(connection, online=True))

    def farewell(self, session: MqttSession) -> int:
        """Say that the gateway leaves: an orderly disconnect publishes no will.

        Raises:
            TransientError: the session's queue is full.
        """
        return self._publish(session, self._message(session.connection, online=False))

    def _publish(self, session: MqttSession, payload: bytes) -> int:
        return session.publish(self.topics.presence(self.gateway), payload, retain=True)

    def _message(self, connection: int, *, online: bool) -> bytes:
        message = Presence(gateway=self.gateway, online=online, boot_id=self.boot_id, connection=connection)
        return encode(message)


class PresenceRepetition:
    """When to say it again: a broker that forgot its retained messages learns it within ten minutes."""

    def __init__(self, voice: PresenceVoice, session: MqttSession, *, repeat_s: float = REPEAT_S) -> None:
        self._voice = voice
        self._session = session
        self._repeat_s = repeat_s
        self._connection: int | None = None
        self._said_s = 0.0

    def connected(self, connection: int, now_s: float) -> None:
        """Announce a new connection; called with each ``Connected``.

        Raises:
            TransientError: the session's queue is full.
        """
        self._connection = connection
        self._say(now_s)

    def tick(self, now_s: float) -> None:
        """Repeat if it is time; called now and then with monotonic seconds.

        Raises:
            TransientError: the session's queue is full; the next tick tries again.
        """
        if self._session.connected and now_s - self._said_s >= self._repeat_s:
            self._say(now_s)

    def _say(self, now_s: float) -> None:
        if self._connection is not None:
            self._voice.announce(self._session, self._connection)
            self._said_s = now_s
