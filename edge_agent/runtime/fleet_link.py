"""The gateway's ways to its fleet: session, presence, outbox pump, downloads and uploads."""

import time
from collections.abc import Callable

import structlog

from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError, TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import Downloader
from edge_agent.link.event_queue import EventQueue
from edge_agent.link.events import Disconnected, Published, Subscription
from edge_agent.link.outbox import Outbox
from edge_agent.link.outbox_pump import OutboxPump
from edge_agent.link.presence import PresenceRepetition, PresenceVoice
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import TimeJudge
from edge_agent.link.upload import Uploader
from edge_agent.runtime.error_reports import ErrorReports
from edge_agent.runtime.inbox import INBOX_EVENTS
from edge_agent.wire.messages import Ack
from edge_agent.wire.topics import FleetTopics

SESSION_EXPIRY_S = 14 * 86_400
NOT_AUTHORIZED = "Not authorized"  # MQTT 5, reason code 0x87
ADMITTED_AGAIN_S = 60.0  # where some topics are refused and others not: so often at most everything is said again
_log = structlog.get_logger(__name__)


class FleetLink:
    """Everything that speaks with the fleet's broker, and what its events mean for it.

    Attributes:
        events: what the session has received, for the inbox.
        blobs, downloads: of releases.
        order_blobs, order_downloads: of orders.
        refusal: why the broker refused the last publication that it answered; empty if it did not.

    Raises:
        StorageError: a folder cannot be made.
    """

    def __init__(
        self, settings: AgentSettings, boot_id: str, outbox: Outbox, errors: ErrorReports, judge: TimeJudge
    ) -> None:
        broker, gateway = settings.broker.settings().judged_by(judge), settings.gateway.id
        data, topics = settings.gateway.data_dir, FleetTopics(settings.gateway.fleet)
        self._outbox = outbox
        self._errors = errors
        self._place = broker.place
        self.refusal = ""
        self._admitted_s = -ADMITTED_AGAIN_S
        self.topics = topics
        self.events = EventQueue(INBOX_EVENTS)
        self._voice = PresenceVoice(topics, gateway, boot_id)
        self._subscriptions = [
            Subscription(one) for one in (topics.down_filter(gateway), topics.release, topics.bridge)
        ]
        self.session = MqttSession(
            broker,
            gateway,
            clean_start=False,
            session_expiry_s=SESSION_EXPIRY_S,
            inbox=self.events,
            subscriptions=self._subscriptions,
            will=self._voice.will,
        )
        self._repetition = PresenceRepetition(self._voice, self.session)
        self.pump = OutboxPump(outbox, self.session, topics.event(gateway))
        self.blobs = BlobStore(data / "blobs")
        self.downloads = Downloader(broker, f"{gateway}.down", topics, self.blobs)
        self.order_blobs = BlobStore(data / "base")
        self.order_downloads = Downloader(broker, f"{gateway}.base", topics, self.order_blobs)
        self.uploads = Uploader(broker, f"{gateway}.up", topics, gateway, data / "updates")

    def connected(self, connection: int) -> None:
        """Say that the gateway is there, and send again what was not acknowledged."""
        _log.info("connected", broker=self._place, connection=connection)
        self._speak(lambda: self._repetition.connected(connection, time.monotonic()))
        self.pump.on_connected()

    def disconnected(self, event: Disconnected) -> None:
        """Name the reason; another client with this gateway's id is an error of the fleet."""
        _log.warning("disconnected", broker=self._place, reason=event.reason, retry_in_s=round(event.retry_in_s, 1))
        if event.taken_over:
            self._errors.tell("link", "another client uses this gateway's id", "give each gateway its own folder")

    def published(self, event: Published) -> None:
        """Name a publication that the broker refused; once it takes one again, say and ask everything anew."""
        if not event.ok:
            _log.warning("publication_refused", broker=self._place, reason=event.reason)
            self.refusal = NOT_AUTHORIZED if event.reason == NOT_AUTHORIZED else self.refusal
        elif self.refusal:
            self.refusal = ""
            self._admitted()

    def acknowledged(self, ack: Ack) -> None:
        """Forget what the bridge has committed, and upload what it grants."""
        if ack.epoch is not None and ack.committed:
            try:
                self._outbox.acknowledge(ack.epoch, ack.committed)
            except StorageError as error:
                _log.error("acknowledgement_not_stored", problem=str(error))
        for grant in ack.grants:
            self.uploads.grant(grant)

    def repeat_presence(self) -> None:
        """Say now and then that the gateway is still there."""
        self._speak(lambda: self._repetition.tick(time.monotonic()))

    def announce(self) -> None:
        """Say now that the gateway is there."""
        self._speak(lambda: self._voice.announce(self.session, self.session.connection))

    def say_goodbye(self) -> None:
        """Say that the gateway goes, if anybody hears."""
        if self.session.connected:
            self._speak(lambda: self._voice.farewell(self.session))

    def _admitted(self) -> None:
        """The access list has come to know us: presence was lost, and what is retained was withheld."""
        now_s = time.monotonic()
        if now_s - self._admitted_s < ADMITTED_AGAIN_S:
            return
        self._admitted_s = now_s
        _log.info("admitted", broker=self._place)
        for subscription in self._subscriptions:
            self.session.subscribe(subscription)
        self.announce()

    def _speak(self, say: Callable[[], object]) -> None:
        """Presence is repeated: one that finds no room is said again."""
        try:
            say()
        except TransientError as error:
            _log.info("presence_not_sent", problem=str(error))
