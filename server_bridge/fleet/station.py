"""The bridge's place at the broker: session, ingest, commands and uploads, assembled and kept going."""

import secrets
import time
from collections.abc import Callable, Sequence

import structlog

from edge_agent.link.event_queue import EventQueue
from edge_agent.link.events import Subscription, Will
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import BridgePresence, Event, State
from edge_agent.wire.messages.command import Sign
from edge_agent.wire.topics import FleetTopics
from server_bridge.fleet.ingest import Ingest
from server_bridge.fleet.loops import InboxStep, Loop, TimerStep
from server_bridge.fleet.mqtt_fleet import BlobSource, MqttFleet
from server_bridge.fleet.post import Post
from server_bridge.fleet.registry import Registry
from server_bridge.store.store import Store

INBOX_MESSAGES = 2000
RECEIVE_MAXIMUM = 100
QUEUED_MESSAGES = 20_000
QUEUED_BYTES = 64 * 1024 * 1024
_log = structlog.get_logger(__name__)


class FleetStation:
    """Everything between the broker and the store.

    A clean session: what matters is sent again by its gateway until acknowledged, so the broker
    keeps nothing for an absent bridge.

    Args:
        broker: where it is.
        topics: this fleet's.
        store: where it goes.
        sign: signs commands.
        update_cap_bytes: by bundle digest and training graph, the most an update may take.
        blobs: publishes base weights.
        on_events: told when the store has new events.
        on_states: told what gateways say that they run and trust; must not block.
    """

    def __init__(
        self,
        broker: BrokerSettings,
        topics: FleetTopics,
        store: Store,
        sign: Sign,
        update_cap_bytes: Callable[[str, str], int],
        blobs: BlobSource,
        *,
        on_events: Callable[[Sequence[Event]], None] = lambda events: None,
        on_states: Callable[[Sequence[State]], None] = lambda states: None,
    ) -> None:
        self.boot_id = secrets.token_hex(8)
        self._place = broker.place
        self._topics = topics
        self._store = store
        inbox = EventQueue(INBOX_MESSAGES)
        self.session = MqttSession(
            broker,
            client_id(topics.fleet),
            clean_start=True,
            session_expiry_s=0,
            inbox=inbox,
            subscriptions=[Subscription(topics.any_fleet_up_filter)],
            will=lambda connection: Will(topics.bridge, self._presence(online=False)),
            receive_maximum=RECEIVE_MAXIMUM,
            max_queued=QUEUED_MESSAGES,
            max_queued_bytes=QUEUED_BYTES,
        )
        self._post = Post(self.session)
        registry = Registry(store.gateways, time.monotonic)
        self.fleet = MqttFleet(
            topics,
            store,
            registry,
            self._post,
            blobs,
            sign,
            update_cap_bytes,
            self.boot_id,
            on_events=on_events,
            on_states=on_states,
            on_due=lambda: self._timer.hurry(),
        )
        self._ingest = Ingest(
            topics, store, registry, self.fleet, self._post, self.boot_id, monotonic=time.monotonic, wall=time.time
        )
        self._timer = TimerStep(self.fleet.tick, self._housekeeping)
        self.loops = (
            Loop("fleet-inbox", InboxStep(inbox, self._ingest, self._connected)),
            Loop("fleet-timer", self._timer),
        )

    @property
    def alive(self) -> bool:
        """Whether every thread runs."""
        return self.session.alive and all(loop.alive for loop in self.loops)

    def start(self) -> None:
        """Start the threads; the broker may be away."""
        for loop in self.loops:
            loop.start()
        self.session.start()

    def stop(self, timeout_s: float) -> bool:
        """Say goodbye if anybody hears, and end the threads; whether those that use the store ended in time."""
        if self.session.connected:
            self._post.send_raw(self._topics.bridge, self._presence(online=False), retain=True)
        if not self.session.stop(timeout_s / 2):
            _log.info("broker-left-without-a-word", broker=self._place)  # it says it itself, by our will
        ended = [loop.stop(timeout_s / 4) for loop in self.loops]
        return all(ended)

    def _connected(self) -> None:
        self.fleet.reconnected()
        self._post.send_raw(self._topics.bridge, self._presence(online=True), retain=True)

    def _presence(self, *, online: bool) -> bytes:
        return encode(BridgePresence(boot_id=self.boot_id, online=online))

    def _housekeeping(self) -> None:
        self._ingest.flush_drops()
        self._store.trim()
        if self._post.missed_clears:  # the queue was full: all that is retained comes again
            self._post.missed_clears = 0
            self.session.subscribe(Subscription(self._topics.any_fleet_up_filter))


def client_id(fleet: str) -> str:
    """The bridge's one fixed client id: a second bridge would take the session over, and be noticed."""
    return f"bridge-{fleet}"
