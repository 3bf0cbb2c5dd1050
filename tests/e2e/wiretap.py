"""All that passes a broker, and the updates among it put together again."""

from collections import defaultdict
from types import TracebackType
from typing import Self

from edge_agent.link.events import Received
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import Reply, TrainResult
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES
from tests.broker import Mosquitto
from tests.link.peers import Publisher


class Wiretap:
    """Hears every message of every fleet until the context ends.

    Attributes:
        heard: topic and payload, in order, once the context has ended.
    """

    def __init__(self, broker: Mosquitto) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._listener = Publisher(broker.port, "clma/#")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        while not self._listener.inbox.empty():
            event = self._listener.inbox.get_nowait()
            if isinstance(event, Received):
                self.heard.append((event.topic, event.payload))

    def results(self) -> list[TrainResult]:
        """What gateways said of their rounds."""
        replies = [
            decode(Reply, payload, cap_bytes=REPLY_CAP_BYTES) for topic, payload in self.heard if "/reply" in topic
        ]
        return [reply.result for reply in replies if isinstance(reply.result, TrainResult)]

    def updates(self) -> list[tuple[TrainResult, bytes]]:
        """Each result with its update's bytes, where all chunks were heard."""
        chunks: dict[str, dict[int, bytes]] = defaultdict(dict)
        for topic, payload in self.heard:
            if "/up/" in topic and "/blob/" in topic:
                digest, index = topic.rsplit("/", 2)[1:]
                chunks[digest][int(index)] = payload
        found = []
        for result in self.results():
            parts = chunks[result.update.digest]
            if len(parts) == len(result.update.chunks.digests):
                found.append((result, b"".join(parts[index] for index in sorted(parts))))
        return found
