"""Updates held on disk until the bridge has them."""

import threading
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.durable import (
    make_directory,
    read_file,
    remove_directory,
    storage_errors,
    sweep_temporaries,
    write_directory,
)
from edge_agent.wire.blobs import ChunkList, check_chunk, sha256_hex
from edge_agent.wire.codec import Digest, Name, WireModel, decode, encode
from edge_agent.wire.errors import WireError

MAX_OFFERS = 4
OFFER_CAP_BYTES = 256 * 1024

_log = structlog.get_logger(__name__)


class Offer(WireModel):
    """An update that the reply to ``command_id`` has told of."""

    command_id: Name
    digest: Digest
    chunks: ChunkList


@dataclass(frozen=True, slots=True)
class _Held:
    offer: Offer
    directory: Path


class OfferBook:
    """Offers by command id, each in a folder of its own; they survive a restart. Usable from any thread.

    Args:
        directory: made if absent; damaged offers in it are removed.

    Raises:
        StorageError: the folder cannot be made or read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        make_directory(directory)
        sweep_temporaries(directory)
        self._held = self._load()

    def hold(self, offer: Offer, data: bytes) -> None:
        """Keep an update; the oldest beyond ``MAX_OFFERS`` are removed.

        Raises:
            StorageError: the disk refused.
        """
        directory = self._directory / sha256_hex(offer.command_id.encode())
        with self._lock:
            known = self._held.pop(offer.command_id, None)
            if known is None or known.offer != offer:
                remove_directory(directory)
                write_directory(directory, {"offer.json": encode(offer), "update": data})
            self._held[offer.command_id] = _Held(offer, directory)
            for command_id in list(self._held)[:-MAX_OFFERS]:
                remove_directory(self._held.pop(command_id).directory)

    def find(self, command_id: str) -> Offer | None:
        """The offer of a command, if it is held."""
        with self._lock:
            held = self._held.get(command_id)
            return None if held is None else held.offer

    def command_ids(self) -> list[str]:
        """The commands whose updates are held, oldest first."""
        with self._lock:
            return list(self._held)

    def chunk(self, command_id: str, index: int) -> bytes | None:
        """A chunk, checked against the offer; ``None`` if the offer is gone.

        Raises:
            StorageError: the disk damaged it, or cannot be read.
        """
        with self._lock:
            held = self._held.get(command_id)
        if held is None:
            return None
        chunks = held.offer.chunks
        path = held.directory / "update"
        with storage_errors("read", path), path.open("rb") as file:
            file.seek(index * chunks.chunk_bytes)
            data = file.read(chunks.chunk_bytes)
        try:
            check_chunk(data, index, chunks)
        except WireError as error:
            raise StorageError(f"{path}: {error.problem}", "the round is trained again") from None
        return data

    def forget(self, command_id: str) -> None:
        """The bridge has it, or nobody wants it.

        Raises:
            StorageError: the disk refused.
        """
        with self._lock:
            held = self._held.pop(command_id, None)
            if held is not None:
                remove_directory(held.directory)

    def _load(self) -> dict[str, _Held]:
        directories = [path for path in self._directory.iterdir() if path.is_dir()]
        held = {}
        for directory in sorted(directories, key=lambda path: path.stat().st_mtime):
            try:
                data = read_file(directory / "offer.json", cap_bytes=OFFER_CAP_BYTES)
                offer = decode(Offer, data, cap_bytes=OFFER_CAP_BYTES)
            except (StorageError, WireError) as error:
                _log.warning("offer-damaged", directory=directory.name, problem=str(error))
                remove_directory(directory)
            else:
                held[offer.command_id] = _Held(offer, directory)
        return held
