"""The broker's retained chunks as the second copy of a blob that the bridge's disk has damaged or lost."""

import tempfile
from pathlib import Path

import structlog

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import BlobUnavailable, Downloader
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.topics import FleetTopics

FETCH_TIMEOUT_S = 60.0
SILENCE_S = 1.0

_log = structlog.get_logger(__name__)


class BrokerCopies:
    """Fetches as a gateway would, every chunk verified.

    Args:
        client_id: of a client that is connected while a fetch runs; no other may have it then.
    """

    def __init__(self, settings: BrokerSettings, client_id: str, topics: FleetTopics) -> None:
        self._settings = settings
        self._client_id = client_id
        self._topics = topics

    def fetch(self, reference: BlobReference) -> bytes | None:
        """The blob's bytes, or ``None`` if the broker does not hold all of them either.

        Raises:
            StorageError: the disk refused.
        """
        with tempfile.TemporaryDirectory(prefix="blob-") as folder:
            store = BlobStore(Path(folder))
            downloader = Downloader(self._settings, self._client_id, self._topics, store, silence_s=SILENCE_S)
            try:
                downloader.fetch(reference, timeout_s=FETCH_TIMEOUT_S)
            except BlobUnavailable as error:
                _log.warning("blob-not-at-the-broker", digest=reference.digest, problem=error.problem)
                return None
            return store.read(reference.digest)
