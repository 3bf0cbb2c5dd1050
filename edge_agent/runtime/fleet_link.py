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
_log = structlog.get_logger(__name__)


class FleetLink:
    """Everything that speaks with the fleet's broker, and what its events mean for it.

    Attributes:
        events: what the session has received, for the inbox.
        blobs, downloads: of releases.
        order_blobs, order_downloads: of orders.

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
        self.topics = topics
        self.events = EventQueue(INBOX_EVENTS)
        self._voice = PresenceVoice(topics, gateway, boot_id)
        self.session = MqttSession(
            broker,
            gateway,
            clean_start=False,
            session_expiry_s=SESSION_EXPIRY_S,
            inbox=self.events,
            subscriptions=[
                Subscription(topics.down_filter(gateway)),
                Subscription(topics.release),
                Subscription(topics.bridge),
            ],
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
        _log.info("connected", connection=connection)
        self._speak(lambda: self._repetition.connected(connection, time.monotonic()))
        self.pump.on_connected()

    def disconnected(self, event: Disconnected) -> None:
        """Name the reason; another client with this gateway's id is an error of the fleet."""
        _log.warning("disconnected", reason=event.reason, retry_in_s=round(event.retry_in_s, 1))
        if event.taken_over:
            self._errors.tell("link", "another client uses this gateway's id", "give each gateway its own folder")

    def published(self, event: Published) -> None:
        """Name a publication that the broker refused."""
        if not event.ok:
            _log.warning("publication_refused", reason=event.reason)

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

    def _speak(self, say: Callable[[], object]) -> None:
        """Presence is repeated: one that finds no room is said again."""
        try:
            say()
        except TransientError as error:
            _log.info("presence_not_sent", problem=str(error))
