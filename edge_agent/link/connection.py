"""One connection to a broker: paho driven from a single thread, so that none of its locks can meet ours."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_agent.link.events import FAILURE, Subscription, Will
from edge_agent.link.outgoing import Publication
from edge_agent.link.settings import BrokerSettings, SessionOptions
from edge_agent.link.tls import check_dates, tls_context

CONNECT_TIMEOUT_S = 5.0
DYING_S = 0.5
"""A killed process may still be listened for by the kernel for a moment, and what connects then is reset after it."""
MAX_PACKET_BYTES = 1024 * 1024
TAKEN_OVER = 0x8E

# What paho's packet parser raises on bytes that are no MQTT.
_PARSER_ERRORS = (ValueError, TypeError, LookupError, struct.error, AttributeError)


class ConnectionListener(Protocol):
    """Takes what the connection reports; must not raise, block, or call back into it."""

    def accepted(self, session_present: bool) -> None:
        """The broker accepted the connection."""

    def message(self, topic: str, payload: bytes, retain: bool, acknowledge: Callable[[], None]) -> None:
        """A message came; the broker keeps it until ``acknowledge``."""

    def answered(self, message_id: int, code: int, reason: str) -> None:
        """The broker answered a publication."""

    def malformed(self) -> None:
        """A message whose topic is not UTF-8 was dropped."""

    def not_subscribed(self, reason: str) -> None:
        """The broker refused a subscription. That it grants one proves nothing either."""


class Connection:
    """A connection attempt and what follows, until :attr:`ended`.

    Attributes:
        connected: the broker has accepted.
        ended: why it is over, or ``None``.
        taken_over: the broker said that another client uses our id.
        cut_off: the broker had accepted, then closed the socket without a word, in an orderly way.
        reset: the connection was reset: by a broken link, or by a broker that had not read all we sent.
        heard_s: when bytes last came, monotonic seconds.
        window: unanswered publications that the broker allows.
        max_packet_bytes: the largest packet that the broker allows.
    """

    def __init__(
        self, settings: BrokerSettings, options: SessionOptions, will: Will | None, listener: ConnectionListener
    ) -> None:
        self.connected = False
        self.ended: str | None = None
        self.taken_over = False
        self.cut_off = False
        self.reset = False
        self.heard_s = 0.0
        self.window = options.receive_maximum
        self.max_packet_bytes = MAX_PACKET_BYTES
        self._settings = settings
        self._options = options
        self._listener = listener
        self._client = self._make_client(will)

    def open(self) -> None:
        """Connect the socket and send CONNECT; the answer comes in :meth:`step`.

        Raises:
            OSError: no route, refused, or TLS failed.
        """
        if self._settings.tls is not None:
            self._client.tls_set_context(tls_context(self._settings.tls, self._options.client_id))
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = self._options.session_expiry_s
        properties.ReceiveMaximum = self._options.receive_maximum
        properties.MaximumPacketSize = MAX_PACKET_BYTES
        self._client.connect(
            self._settings.host,
            self._settings.port,
            keepalive=self._settings.keepalive_s,
            clean_start=self._options.clean_start,
            properties=properties,
        )

    def step(self, timeout_s: float, waker: socket.socket, *, reading: bool) -> None:
        """Wait for bytes, room to write, the waker or the timeout; then read, write, ping.

        Without ``reading`` what the broker sends waits in the kernel's buffers.
        """
        sock = self._client.socket()
        if sock is None:
            self._end("connection lost")
            return
        poller = select.poll()
        poller.register(waker, select.POLLIN)
        wanted = (select.POLLIN if reading else 0) | (select.POLLOUT if self._client.want_write() else 0)
        poller.register(sock.fileno(), wanted)
        pending = reading and isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        ready = dict(poller.poll(0 if pending else int(timeout_s * 1000)))
        events = ready.get(sock.fileno(), 0)
        self.reset = self.reset or bool(events & select.POLLERR)
        if pending or events & select.POLLIN:
            self.heard_s = time.monotonic()
        if pending or events & ~select.POLLOUT:
            self._read()
        if self.ended is None and self._client.want_write():
            self._check(self._client.loop_write())
        if self.ended is None:
            self._check(self._client.loop_misc())

    def publish(self, publication: Publication) -> int:
        """Send one message; returns its packet's message id."""
        information = self._client.publish(
            publication.topic, publication.payload, qos=publication.qos, retain=publication.retain
        )
        return information.mid

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Send one SUBSCRIBE for all of them."""
        wanted = [(one.filter, _options(one)) for one in subscriptions]
        if wanted:
            self._client.subscribe(wanted)

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Send one UNSUBSCRIBE for all of them."""
        self._client.unsubscribe(list(filters))

    def close(self, *, orderly: bool) -> None:
        """Say goodbye (then no will is published) or drop the socket."""
        if orderly and self.connected:
            self._client.disconnect()
            if self._client.want_write():
                self._client.loop_write()
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        self._end("closed")

    def broker_is_gone(self) -> bool:
        """Whether nothing listens there now: then it was no other client that ended this connection."""
        try:
            with socket.create_connection((self._settings.host, self._settings.port), CONNECT_TIMEOUT_S) as probe:
                probe.settimeout(DYING_S)
                return probe.recv(1) == b""
        except (ConnectionRefusedError, ConnectionResetError):
            return True
        except OSError:
            return False

    def _make_client(self, will: Will | None) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._options.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.max_inflight_messages = 0
        client.max_queued_messages = 0
        if self._settings.username is not None:
            client.username_pw_set(self._settings.username, self._settings.password)
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_socket_open = self._on_socket_open
        return client

    def _read(self) -> None:
        try:
            self._check(self._client.loop_read())
        except _PARSER_ERRORS as error:
            self._end(f"the broker sent what is no MQTT ({type(error).__name__})")
        if self._client._in_packet["remaining_length"] > MAX_PACKET_BYTES:  # paho itself reads packets of any size
            self._end("the broker sends a packet over the maximum we stated")

    def _check(self, code: MQTTErrorCode) -> None:
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._end(code.name)

    def _end(self, reason: str) -> None:
        self.connected = False
        if self.ended is None:
            self.ended = reason

    def _on_socket_open(self, client: Client, userdata: Any, sock: Any) -> None:
        """The handshake is done and nothing is sent yet: what is raised here ends the attempt."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        judge = None if self._settings.tls is None else self._settings.tls.judge
        if judge is not None:
            check_dates(sock.getpeercert(), judge, time.time())

    def _on_connect(
        self, client: Client, userdata: Any, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if code.value >= FAILURE:
            self._end(f"refused: {code}")
            return
        self.window = min(self.window, getattr(properties, "ReceiveMaximum", self.window))
        self.max_packet_bytes = min(MAX_PACKET_BYTES, getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES))
        self.connected = True
        self._listener.accepted(bool(flags.session_present))

    def _on_disconnect(
        self, client: Client, userdata: Any, flags: DisconnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.taken_over = code.value == TAKEN_OVER
            self._end(f"the broker disconnected us: {code}")
        elif code.value == FAILURE:
            self.cut_off = self.connected and not self.reset
            self._end("the broker closed the connection")
        else:
            self._end(str(code))

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        mid, qos = message.mid, message.qos

        def acknowledge() -> None:
            client.ack(mid, qos)

        try:
            topic = message.topic
        except UnicodeDecodeError:
            acknowledge()
            self._listener.malformed()
            return
        self._listener.message(topic, bytes(message.payload), bool(message.retain), acknowledge)

    def _on_subscribe(
        self, client: Client, userdata: Any, message_id: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        for code in codes:
            if code.value >= FAILURE:
                self._listener.not_subscribed(str(code))

    def _on_publish(
        self, client: Client, userdata: Any, message_id: int, code: ReasonCode, properties: Properties | None
    ) -> None:
        self._listener.answered(message_id, code.value, str(code))


def _options(subscription: Subscription) -> SubscribeOptions:
    return SubscribeOptions(qos=1, retainAsPublished=True, retainHandling=subscription.retain_handling)
