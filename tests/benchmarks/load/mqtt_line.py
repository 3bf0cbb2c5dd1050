"""A small MQTT 5 client on asyncio, so that hundreds of simulated gateways fit in one process.

For load only: QoS 1 publish and subscribe, no TLS, no reconnection.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable

WINDOW = 16
CONNECT_TIMEOUT_S = 60.0
KEEPALIVE_S = 60
MAX_PACKET_BYTES = 1024 * 1024
RETAIN_AS_PUBLISHED = 0x08
CONNACK, PUBLISH, PUBACK = 2, 3, 4
OnMessage = Callable[[str, bytes], None]
Will = tuple[str, bytes]


class MqttLine(asyncio.Protocol):
    """One connection.

    Attributes:
        sent_bytes: to the broker, all packets.
        received_bytes: from the broker.
        lost: set when the connection has ended.
    """

    def __init__(
        self,
        client_id: str,
        on_message: OnMessage,
        *,
        clean_start: bool,
        session_expiry_s: int,
        receive_maximum: int,
        will: Will | None = None,
    ) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.lost = asyncio.Event()
        self._hello = _connect(client_id, clean_start, session_expiry_s, receive_maximum, will)
        self._on_message = on_message
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: deque[tuple[str, bytes, bool]] = deque()
        self._open: dict[int, str] = {}
        self._last_id = 0

    async def open(self, host: str, port: int) -> None:
        """Connect and wait for the broker's word."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port)
        await asyncio.wait_for(self._accepted, CONNECT_TIMEOUT_S)
        loop.call_later(KEEPALIVE_S / 2, self._ping)

    def subscribe(self, topic_filter: str) -> None:
        """Subscribe with QoS 1; retained messages come."""
        self._send(0x82, self._next_id() + b"\0" + _text(topic_filter) + bytes([1 | RETAIN_AS_PUBLISHED]))

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe."""
        self._send(0xA2, self._next_id() + b"\0" + _text(topic_filter))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish with QoS 1, at most 16 unanswered."""
        self._waiting.append((topic, payload, retain))
        self._drain()

    def is_sending(self, topic: str) -> bool:
        """Whether a message for this topic is not answered yet."""
        return topic in self._open.values() or any(topic == waiting for waiting, _, _ in self._waiting)

    def close(self) -> None:
        """Say goodbye."""
        self._send(0xE0, b"")
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(0x10, self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's."""
        self.lost.set()
        if not self._accepted.done():
            self._accepted.set_exception(ConnectionError(f"not accepted: {exc}"))

    def data_received(self, data: bytes) -> None:
        """Asyncio's."""
        self.received_bytes += len(data)
        self._buffer += data
        while (packet := self._next_packet()) is not None:
            self._take(*packet)

    def _next_packet(self) -> tuple[int, bytes] | None:
        length, shift = 0, 0
        for place in range(1, min(5, len(self._buffer))):
            byte = self._buffer[place]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                end = place + 1 + length
                if len(self._buffer) < end:
                    return None
                head, body = self._buffer[0], bytes(self._buffer[place + 1 : end])
                del self._buffer[:end]
                return head, body
        return None

    def _take(self, head: int, body: bytes) -> None:
        kind = head >> 4
        if kind == CONNACK and not self._accepted.done():
            if body[1] == 0:
                self._accepted.set_result(None)
            else:
                self._accepted.set_exception(ConnectionError(f"refused with {body[1]}"))
        elif kind == PUBACK:
            self._open.pop(int.from_bytes(body[:2], "big"), None)
            self._drain()
        elif kind == PUBLISH:
            topic_end = 2 + int.from_bytes(body[:2], "big")
            topic, place = body[2:topic_end].decode(), topic_end
            if head & 0x06:
                self._send(0x40, body[place : place + 2])
                place += 2
            properties, place = _read_length(body, place)
            self._on_message(topic, body[place + properties :])

    def _drain(self) -> None:
        while self._waiting and len(self._open) < WINDOW and not self.lost.is_set():
            topic, payload, retain = self._waiting.popleft()
            packet_id = self._next_id()
            self._open[self._last_id] = topic
            self._send(0x32 | retain, _text(topic) + packet_id + b"\0" + payload)

    def _next_id(self) -> bytes:
        self._last_id = self._last_id % 65_535 + 1
        while self._last_id in self._open:
            self._last_id = self._last_id % 65_535 + 1
        return self._last_id.to_bytes(2, "big")

    def _send(self, head: int, body: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        packet = bytes([head]) + _length(len(body)) + body
        self.sent_bytes += len(packet)
        self._transport.write(packet)

    def _ping(self) -> None:
        if not self.lost.is_set():
            self._send(0xC0, b"")
            asyncio.get_running_loop().call_later(KEEPALIVE_S / 2, self._ping)


def _connect(client_id: str, clean_start: bool, expiry_s: int, receive_maximum: int, will: Will | None) -> bytes:
    flags = 0x02 * clean_start | (0x2C if will is not None else 0)
    properties = struct.pack(">BIBHBI", 0x11, expiry_s, 0x21, receive_maximum, 0x27, MAX_PACKET_BYTES)
    body = _text("MQTT") + bytes([5, flags]) + KEEPALIVE_S.to_bytes(2, "big")
    body += _length(len(properties)) + properties + _text(client_id)
    if will is not None:
        topic, payload = will
        body += b"\0" + _text(topic) + len(payload).to_bytes(2, "big") + payload
    return body


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _length(value: int) -> bytes:
    out = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _read_length(data: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
