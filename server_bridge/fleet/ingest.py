"""From the broker into the store: check, commit in batches, then acknowledge."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import structlog

from edge_agent.link.events import Received
from edge_agent.wire.codec import decode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import (
    EVENT_CAP_BYTES,
    PRESENCE_CAP_BYTES,
    REPLY_CAP_BYTES,
    STATE_CAP_BYTES,
    Ack,
    BlobMissingEvent,
    Event,
    Presence,
    Reply,
    State,
)
from edge_agent.wire.topics import FleetTopics, ParsedTopic, TopicKind, parse_topic
from server_bridge.fleet.conduct import Conduct, Verdict
from server_bridge.fleet.post import Post
from server_bridge.fleet.registry import Registry, ignore
from server_bridge.store.events import Taken
from server_bridge.store.marks import ranges
from server_bridge.store.store import Store

STRANGER = "unregistered"
_RETAINED = (TopicKind.PRESENCE, TopicKind.STATE)
_ACK_RANGES = 512

M = TypeVar("M", Event, State, Presence, Reply)

_log = structlog.get_logger(__name__)


class Receiver(Protocol):
    """Takes what is not for the store alone; its methods run after the batch's commit."""

    def on_presence(self, presence: Presence) -> None:
        """A gateway, or its will, says whether it is there."""
        ...

    def on_reply(self, reply: Reply) -> None:
        """A gateway answers a command. Raises WireError if the answer is unusable."""
        ...

    def on_chunk(self, gateway: str, digest: str, index: int, payload: bytes) -> None:
        """A chunk of an update. Raises WireError if it was not granted."""
        ...

    def on_new_events(self, events: Sequence[Event]) -> None:
        """Events that the store has now, each once."""
        ...

    def on_states(self, states: Sequence[State]) -> None:
        """What gateways say that they run and trust."""
        ...

    def on_blob_missing(self, gateway: str, event: BlobMissingEvent) -> None:
        """A gateway needs a blob that stays silent."""
        ...


@dataclass(slots=True)
class _Batch:
    events: list[Event] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)


class Ingest:
    """Takes batches of messages from ``clma/1/+/up/#``.

    Args:
        topics: this fleet's.
        store: where events and states go.
        registry: who belongs to the fleet.
        receiver: takes presence, replies and chunks.
        post: sends acknowledgements.
        boot_id: this start of the bridge, named in acknowledgements.
        monotonic: seconds, never going back.
        wall: seconds since 1970, for records only.
        conduct: what a gateway may send in a minute.
    """

    def __init__(
        self,
        topics: FleetTopics,
        store: Store,
        registry: Registry,
        receiver: Receiver,
        post: Post,
        boot_id: str,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        conduct: Conduct | None = None,
    ) -> None:
        self._topics = topics
        self._store = store
        self._registry = registry
        self._receiver = receiver
        self._post = post
        self._boot_id = boot_id
        self._monotonic = monotonic
        self._wall = wall
        self._conduct = conduct or Conduct()
        self._drops: Counter[tuple[str, str]] = Counter()

    def handle(self, received: Sequence[Received]) -> None:
        """Take a batch: one commit, then acknowledgements and everything else.

        Raises:
            StorageError: nothing of the batch is stored and nothing acknowledged.
        """
        batch = _Batch()
        for message in received:
            self._sort(message, batch)
        taken = self._commit(batch)
        self._acknowledge(batch.events, taken)
        for action in batch.after:
            action()
        self._tell(batch.events, taken)
        if batch.states:
            self._receiver.on_states(batch.states)

    def flush_drops(self) -> None:
        """Move the counts of dropped messages to the store."""
        counted, self._drops = self._drops, Counter()
        if counted:
            self._store.drops.add(counted)

    def _sort(self, message: Received, batch: _Batch) -> None:
        if not message.payload:
            return
        sender = self._sender(message.topic)
        charged = False
        try:
            if self._registry.ignored(sender):
                raise WireError("ignored", "the bridge does not listen to this gateway")
            topic = parse_topic(message.topic)
            self._check_sender(topic, message)
            charged = topic.kind is not TopicKind.UPLOAD_CHUNK  # those are bounded by their grants
            if charged and self._charge(sender, len(message.payload), batch) is not Verdict.FINE:
                raise WireError("quota", "too much in this minute")
            self._read(topic, sender, message.payload, batch)
        except WireError as error:
            stray = self._clear_stray(sender, message)
            self._drop(sender, error)
            if not charged and error.what != "ignored":
                self._charge(sender, len(message.payload), batch, stray=stray)

    def _sender(self, topic: str) -> str:
        """Whose topic it is, also if it is none of the contract; the broker lets nobody else write there."""
        parts = topic.split("/", 5)
        if len(parts) > 4 and parts[3] == "up" and parts[4] in self._registry:
            return parts[4]
        return STRANGER

    def _check_sender(self, topic: ParsedTopic, message: Received) -> None:
        if topic.fleet != self._topics.fleet:
            raise WireError("topic", "another fleet's tree")
        if message.retain and topic.kind not in _RETAINED:
            raise WireError("topic", "retained where nothing is retained")
        if topic.gateway not in self._registry:
            raise WireError("gateway", "not registered")

    def _clear_stray(self, sender: str, message: Received) -> bool:
        """Remove what is retained where nothing is; whether it was such a message.

        Another fleet's tree is not ours to clear, but for what one of our gateways has put there: an
        id is the certificate's common name, so it has one owner on a broker.
        """
        if not message.retain or self._may_be_retained(sender, message.topic):
            return False
        if sender == STRANGER and not message.topic.startswith(f"{self._topics.root}/up/"):
            return False
        self._post.clear(message.topic)
        return True

    def _may_be_retained(self, sender: str, name: str) -> bool:
        try:
            topic = parse_topic(name)
        except WireError:
            return False
        return topic.fleet == self._topics.fleet and topic.kind in _RETAINED and sender != STRANGER

    def _charge(self, gateway: str, size_bytes: int, batch: _Batch, *, stray: bool = False) -> Verdict:
        """Count a message against its gateway, and stop listening to one that goes too far."""
        if gateway == STRANGER:
            return Verdict.FINE
        verdict = self._conduct.judge(gateway, size_bytes, self._monotonic(), stray=stray)
        if verdict is Verdict.IGNORE:
            why = self._conduct.account(gateway)
            if ignore(self._store, gateway, why, self._wall()):
                _log.error("gateway-ignored", gateway=gateway, why=why)
            self._registry.forget()
            batch.events = [event for event in batch.events if event.gateway != gateway]
            batch.states = [state for state in batch.states if state.gateway != gateway]
        return verdict

    def _read(self, topic: ParsedTopic, gateway: str, payload: bytes, batch: _Batch) -> None:
        if topic.kind is TopicKind.UPLOAD_CHUNK and topic.digest is not None and topic.index is not None:
            self._later(
                batch, gateway, len(payload), self._receiver.on_chunk, gateway, topic.digest, topic.index, payload
            )
            return
        if b"\\u0000" in payload:
            raise WireError("message", "holds a NUL character")
        if topic.kind is TopicKind.EVENT:
            batch.events.append(_own(gateway, decode(Event, payload, cap_bytes=EVENT_CAP_BYTES)))
        elif topic.kind is TopicKind.STATE:
            batch.states.append(_own(gateway, decode(State, payload, cap_bytes=STATE_CAP_BYTES)))
        elif topic.kind is TopicKind.PRESENCE:
            presence = _own(gateway, decode(Presence, payload, cap_bytes=PRESENCE_CAP_BYTES))
            self._later(batch, gateway, 0, self._receiver.on_presence, presence)
        elif topic.kind is TopicKind.REPLY:
            reply = _own(gateway, decode(Reply, payload, cap_bytes=REPLY_CAP_BYTES))
            self._later(batch, gateway, 0, self._receiver.on_reply, reply)

    def _later(
        self, batch: _Batch, gateway: str, uncharged_bytes: int, call: Callable[..., None], *arguments: object
    ) -> None:
        """Run after the commit; chunks are bounded by their grants, so only refused ones are charged."""

        def run() -> None:
            try:
                call(*arguments)
            except WireError as error:
                self._drop(gateway, error)
                if uncharged_bytes:
                    self._charge(gateway, uncharged_bytes, batch)

        batch.after.append(run)

    def _commit(self, batch: _Batch) -> list[Taken]:
        if not batch.events and not batch.states:
            return []
        now_s = self._wall()
        with self._store.transaction():
            for state in batch.states:
                self._store.gateways.set_state(state, now_s)
            return [self._store.events.take(event, now_s) for event in batch.events]

    def _acknowledge(self, events: Sequence[Event], taken: Sequence[Taken]) -> None:
        done: dict[tuple[str, str], list[int]] = {}
        for event, outcome in zip(events, taken, strict=True):
            if outcome is not Taken.DEFERRED:
                done.setdefault((event.gateway, event.epoch), []).append(event.sequence)
        for (gateway, epoch), sequences in done.items():
            committed = ranges(sequences)
            for start in range(0, len(committed), _ACK_RANGES):
                part = committed[start : start + _ACK_RANGES]
                ack = Ack(bridge_boot_id=self._boot_id, epoch=epoch, committed=part)
                self._post.send(self._topics.ack(gateway), ack)

    def _tell(self, events: Sequence[Event], taken: Sequence[Taken]) -> None:
        new = [event for event, outcome in zip(events, taken, strict=True) if outcome is Taken.NEW]
        if new:
            self._receiver.on_new_events(new)
        for event in new:
            if isinstance(event.body, BlobMissingEvent):
                self._receiver.on_blob_missing(event.gateway, event.body)

    def _drop(self, gateway: str, error: WireError) -> None:
        self._drops[gateway, error.what] += 1
        _log.info("message-dropped", gateway=gateway, what=error.what, problem=error.problem)


def _own(gateway: str, message: M) -> M:
    """A message speaks for its sender only."""
    if message.gateway != gateway:
        raise WireError("gateway", "the message names another gateway than its topic")
    return message
