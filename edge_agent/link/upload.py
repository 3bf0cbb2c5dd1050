"""Sending updates: only the chunks that the bridge has granted, on a client of its own."""

import queue
import threading
import time
from pathlib import Path

import structlog

from edge_agent.errors import StorageError, TransientError
from edge_agent.link.events import Published, SessionEvent
from edge_agent.link.offers import Offer, OfferBook
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import ChunkList, sha256_hex
from edge_agent.wire.messages import ChunkGrant
from edge_agent.wire.topics import FleetTopics

LINGER_S = 5.0
POLL_S = 0.25
SENDING_CHUNKS = 16
STOP_TIMEOUT_S = 2.0

_log = structlog.get_logger(__name__)


class Uploader:
    """Holds updates on disk and sends what is granted.

    Args:
        client_id: of the transfer client, which is connected only while there is something to send.
        directory: where updates are held.

    Raises:
        StorageError: the folder cannot be made or read.
    """

    def __init__(
        self, settings: BrokerSettings, client_id: str, topics: FleetTopics, gateway: str, directory: Path
    ) -> None:
        self.failure: BaseException | None = None
        self.refused_grants = 0
        self._settings = settings
        self._client_id = client_id
        self._topics = topics
        self._gateway = gateway
        self._offers = OfferBook(directory)
        self._granted: dict[tuple[str, int], None] = {}
        self._sending: dict[int, tuple[str, int]] = {}
        self._done: list[str] = []
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(4 * SENDING_CHUNKS)
        self._session: MqttSession | None = None
        self._thread = threading.Thread(target=self._run, name=f"upload-{client_id}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if not, and nobody stopped it, ``failure`` says why."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to serve grants."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End; what is not sent stays held."""
        self._stopping.set()
        self._work.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def offer(self, command_id: str, data: bytes, chunk_list: ChunkList) -> None:
        """Hold an update, on disk, until :meth:`forget` or a grant that says it is complete.

        Raises:
            StorageError: the disk refused.
        """
        self._offers.hold(Offer(command_id=command_id, digest=sha256_hex(data), chunks=chunk_list), data)

    def offered(self) -> list[str]:
        """The command ids whose updates are held, oldest first."""
        return self._offers.command_ids()

    def grant(self, grant: ChunkGrant) -> None:
        """The bridge permits these chunks, or has them all. Never blocks; a grant for nothing held is counted.

        A chunk that is on its way is not sent twice: on a slow link the bridge asks again before it can be there.
        """
        offer = self._offers.find(grant.command_id)
        if offer is None or offer.digest != grant.digest:
            self.refused_grants += 1
            return
        count = len(offer.chunks.digests)
        with self._lock:
            if not grant.indices:
                self._done.append(grant.command_id)
            for index in grant.indices:
                if index < count:
                    self._granted[grant.command_id, index] = None
                else:
                    self.refused_grants += 1
        self._work.set()

    def forget(self, command_id: str) -> None:
        """The update is not wanted any more.

        Raises:
            StorageError: the disk refused.
        """
        with self._lock:
            self._granted = {key: None for key in self._granted if key[0] != command_id}
        self._offers.forget(command_id)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._forget_done()
                if self._send_granted():
                    continue
                self._work.clear()
                if not self._granted and not self._done:
                    self._rest()
        except BaseException as error:
            self.failure = error
            _log.exception("uploader-died", client_id=self._client_id)
        finally:
            self._disconnect()

    def _rest(self) -> None:
        """Wait for work; disconnect when there has been none for a while."""
        until_s = time.monotonic() + LINGER_S
        while not self._work.wait(POLL_S):
            self._read_outcomes(0.0)
            if self._stopping.is_set():
                return
            if time.monotonic() > until_s:
                self._disconnect()

    def _forget_done(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for command_id in done:
            try:
                self.forget(command_id)
            except StorageError as error:
                _log.error("offer-not-removed", command_id=command_id, problem=str(error))

    def _send_granted(self) -> bool:
        """Send one granted chunk; returns whether there may be more to do."""
        with self._lock:
            first = next(iter(self._granted), None)
            if first is None:
                return False
            del self._granted[first]
        command_id, index = first
        try:
            self._send(command_id, index)
        except TransientError:
            with self._lock:
                self._granted.setdefault(first, None)
            self._read_outcomes(POLL_S)
        except StorageError as error:
            _log.error("update-unreadable", command_id=command_id, index=index, problem=str(error))
        return not self._stopping.is_set()

    def _send(self, command_id: str, index: int) -> None:
        offer = self._offers.find(command_id)
        chunk = self._offers.chunk(command_id, index)
        if offer is None or chunk is None:
            return
        self._read_outcomes(0.0)
        if (command_id, index) in self._sending.values():
            return
        topic = self._topics.upload_chunk(self._gateway, offer.digest, index)
        session = self._connected_session()
        self._sending[session.publish(topic, chunk)] = (command_id, index)

    def _connected_session(self) -> MqttSession:
        if self._session is None or not self._session.alive:
            self._sending.clear()
            self._session = MqttSession(
                self._settings,
                self._client_id,
                clean_start=True,
                session_expiry_s=0,
                inbox=self._inbox,
                max_queued=SENDING_CHUNKS,
            )
            self._session.start()
        return self._session

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.stop(STOP_TIMEOUT_S)
        self._sending.clear()

    def _read_outcomes(self, timeout_s: float) -> None:
        """Empty the inbox, after waiting at most ``timeout_s`` for the first: the broker's answers make room."""
        try:
            while True:
                event = self._inbox.get(timeout=timeout_s) if timeout_s else self._inbox.get_nowait()
                timeout_s = 0.0
                if not isinstance(event, Published):
                    continue
                self._sending.pop(event.token, None)
                if not event.ok:
                    _log.warning("chunk-not-taken", client_id=self._client_id, reason=event.reason)
        except queue.Empty:
            return
