"""What a gateway was handed to trust, read; the way out of what is wrong with it is always the same."""

from pathlib import Path

from edge_agent.errors import StorageError, WireError
from edge_agent.link.durable import read_file
from edge_agent.wire.provision import FLOORS_CAP_BYTES, ProvisionedFloors, read_floors

ROOT_CAP_BYTES = 1024 * 1024
_REMEDY = "provision the gateway again: `server-bridge gateway provision`"


def provisioned_root(path: Path) -> bytes:
    """The root of trust's bytes.

    Raises:
        StorageError: it cannot be read.
    """
    return _read(path, ROOT_CAP_BYTES)


def provisioned_floors(path: Path) -> ProvisionedFloors:
    """The least versions that are taken.

    Raises:
        StorageError: they cannot be read, or are damaged.
    """
    payload = _read(path, FLOORS_CAP_BYTES)
    try:
        return read_floors(payload)
    except WireError as error:
        raise StorageError(f"{path} is damaged: {error}", _REMEDY) from error


def _read(path: Path, cap_bytes: int) -> bytes:
    try:
        return read_file(path, cap_bytes=cap_bytes)
    except StorageError as error:
        raise StorageError(error.problem, error.hint or _REMEDY) from error
