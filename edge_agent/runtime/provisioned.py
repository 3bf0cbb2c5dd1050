"""What a gateway was handed to trust, read; the way out of what is wrong with it is always the same."""

from pathlib import Path

from edge_agent.errors import ConfigError, RejectedUpdate, StorageError, WireError
from edge_agent.link.durable import read_file
from edge_agent.ota.root_of_trust import check_root
from edge_agent.wire.provision import FLOORS_CAP_BYTES, ProvisionedFloors, read_floors

ROOT_CAP_BYTES = 1024 * 1024
REMEDY = "provision the gateway again: `server-bridge gateway provision`, and copy this file from the new folder"


class WronglyProvisioned(ConfigError):
    """A file of the provisioned folder is absent or damaged: a person must bring another; restarting does not help."""


def provisioned_root(path: Path) -> bytes:
    """The root of trust's bytes, which can be one.

    Raises:
        WronglyProvisioned: it cannot be read, or no release could ever be verified with it.
    """
    root = _read(path, ROOT_CAP_BYTES)
    try:
        check_root(root)
    except RejectedUpdate as error:
        raise WronglyProvisioned(f"{path} is no root of trust: {error.problem}", REMEDY) from error
    return root


def is_root_usable(path: Path) -> bool:
    """Whether the root of trust can be read and can be one."""
    try:
        provisioned_root(path)
    except WronglyProvisioned:
        return False
    return True


def provisioned_floors(path: Path) -> ProvisionedFloors:
    """The least versions that are taken.

    Raises:
        WronglyProvisioned: they cannot be read, or are damaged.
    """
    payload = _read(path, FLOORS_CAP_BYTES)
    try:
        return read_floors(payload)
    except WireError as error:
        raise WronglyProvisioned(f"{path} is damaged: {error}", REMEDY) from error


def _read(path: Path, cap_bytes: int) -> bytes:
    try:
        return read_file(path, cap_bytes=cap_bytes)
    except StorageError as error:
        raise WronglyProvisioned(error.problem, error.hint or REMEDY) from error
