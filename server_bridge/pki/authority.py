"""The fleet's authority on disk: what it issued, what it revoked, and the broker's files that follow from it.

<fleet folder>/pki/ca.crt, ca.key, issued/<serial>.crt, revoked/<serial>.json, broker/{ca.crt,crl.pem,acl,broker.*}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from edge_agent.errors import ConfigError
from edge_agent.link.durable import PRIVATE_MODE, make_directory, read_file, read_json, write_file, write_json
from edge_agent.link.settings import CA_FILE, CERTIFICATE_SUFFIX, KEY_SUFFIX
from edge_agent.wire.rights import bridge_identities, gateway_identities, may_be_gateway
from server_bridge.pki.acl import access_list
from server_bridge.pki.certificates import (
    Pair,
    check_name,
    common_name,
    is_client,
    issue,
    make_authority,
    read_pair,
    revocation_list,
    utc_now,
)

PKI_FOLDER = "pki"
TLS_FOLDER = "tls"
BROKER_FOLDER = "broker"
BROKER_NAME = "broker"
CRL_FILE = "crl.pem"
ACL_FILE = "acl"
CA_KEY_FILE = "ca.key"
AUTHORITY_DAYS = 20 * 365
CERTIFICATE_DAYS = 5 * 365
CAP_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate of ours; ``revoked`` says since when it is not valid, if so."""

    name: str
    serial: int
    expires: datetime
    client: bool
    revoked: datetime | None


class Authority:
    """Issues and revokes; after each change the broker's revocation list and access list are made anew.

    Every certificate is on record before its key is handed out, so that it can be revoked.
    """

    def __init__(self, directory: Path, fleet: str, pair: Pair) -> None:
        self.directory = directory
        self.fleet = fleet
        self._pair = pair

    @classmethod
    def create(cls, fleet_folder: Path, fleet: str, *, days: int = AUTHORITY_DAYS) -> "Authority":
        """Make a fleet's authority.

        Raises:
            ConfigError: it has one.
            StorageError: the disk refused.
        """
        directory = fleet_folder / PKI_FOLDER
        if (directory / CA_FILE).exists() or (directory / CA_KEY_FILE).exists():
            raise ConfigError(f"{directory} already holds an authority", "use it; a new one would fit no gateway")
        pair = make_authority(fleet, days=days, now=utc_now())
        make_directory(directory)
        write_file(directory / CA_KEY_FILE, pair.key_pem, mode=PRIVATE_MODE)
        write_file(directory / CA_FILE, pair.certificate_pem)
        authority = cls(directory, fleet, pair)
        authority.renew_broker_files()
        return authority

    @classmethod
    def load(cls, fleet_folder: Path, fleet: str) -> "Authority":
        """A fleet's authority.

        Raises:
            ConfigError: there is none, or its files are damaged.
        """
        directory = fleet_folder / PKI_FOLDER
        for name in (CA_FILE, CA_KEY_FILE):
            if not (directory / name).is_file():
                raise ConfigError(
                    f"{directory / name} is not there",
                    "run `server-bridge pki init`, or bring back the key that was kept elsewhere",
                )
        certificate = read_file(directory / CA_FILE, cap_bytes=CAP_BYTES)
        try:
            pair = read_pair(certificate, read_file(directory / CA_KEY_FILE, cap_bytes=CAP_BYTES))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the authority in {directory} is damaged: {error}", "restore it from a copy") from None
        return cls(directory, fleet, pair)

    def gateway(self, gateway: str, *, days: int = CERTIFICATE_DAYS) -> Mapping[str, bytes]:
        """A gateway's credentials, by file name: the authority, and certificate and key of each connection.

        The broker knows them after :meth:`renew_broker_files`.

        Raises:
            ConfigError: the id may not be, or is too long.
        """
        check_gateway(gateway)
        return self._credentials(gateway_identities(gateway), days)

    def bridge(self, *, days: int = CERTIFICATE_DAYS) -> Mapping[str, bytes]:
        """The bridge's credentials, by file name, as for :meth:`gateway`.

        Raises:
            ConfigError: the fleet's name is too long.
        """
        return self._credentials(bridge_identities(self.fleet), days)

    def broker(self, hosts: Sequence[str], *, days: int = CERTIFICATE_DAYS) -> Path:
        """Make the broker's certificate, for every name and address by which it is reached; its folder.

        Raises:
            ConfigError: it has one, or a host is none.
        """
        folder = self.directory / BROKER_FOLDER
        certificate, key = (folder / f"{BROKER_NAME}{suffix}" for suffix in (CERTIFICATE_SUFFIX, KEY_SUFFIX))
        if key.exists() or certificate.exists():
            raise ConfigError(f"{certificate} exists already", "to renew it, move it and its key away first")
        pair = issue(self._pair, BROKER_NAME, hosts=hosts, days=days, now=utc_now())
        self._record(pair)
        write_file(key, pair.key_pem, mode=PRIVATE_MODE)
        write_file(certificate, pair.certificate_pem)
        self.renew_broker_files()
        return folder

    def revoke(self, name: str) -> list[Issued]:
        """Revoke every valid certificate of an identity and of the connections under it; which those were.

        Raises:
            ConfigError: there is none.
        """
        doomed = [
            one
            for one in self.issued()
            if one.revoked is None and (one.name == name or one.name.startswith(f"{name}."))
        ]
        if not doomed:
            raise ConfigError(f"no valid certificate names {name!r}", "`server-bridge pki list` shows them")
        make_directory(self.directory / "revoked")
        for one in doomed:
            said = {"name": one.name, "revoked_s": int(utc_now().timestamp())}
            write_json(self.directory / "revoked" / f"{one.serial:x}.json", said)
        self.renew_broker_files()
        return doomed

    def issued(self) -> list[Issued]:
        """Everything ever issued, by name.

        Raises:
            ConfigError: a record is damaged.
        """
        revoked = self._revoked()
        found = []
        for path in (self.directory / "issued").glob("*.crt"):
            try:
                certificate = x509.load_pem_x509_certificate(read_file(path, cap_bytes=CAP_BYTES))
            except ValueError:
                raise ConfigError(f"{path} is no certificate", "restore it from a copy") from None
            serial = certificate.serial_number
            expires = certificate.not_valid_after_utc
            found.append(Issued(common_name(certificate), serial, expires, is_client(certificate), revoked.get(serial)))
        return sorted(found, key=lambda one: (one.name, one.expires))

    def renew_broker_files(self) -> None:
        """Make the broker's authority, revocation list and access list anew.

        Raises:
            StorageError: the disk refused.
        """
        folder = self.directory / BROKER_FOLDER
        make_directory(folder)
        now, issued = utc_now(), self.issued()
        gone = [(one.serial, one.revoked) for one in issued if one.revoked is not None]
        valid = [one.name for one in issued if one.client and one.revoked is None]
        write_file(folder / CA_FILE, self._pair.certificate_pem)
        write_file(folder / CRL_FILE, revocation_list(self._pair, gone, now=now))
        write_file(folder / ACL_FILE, access_list(self.fleet, valid).encode())

    def _credentials(self, identities: Sequence[str], days: int) -> Mapping[str, bytes]:
        files = {CA_FILE: self._pair.certificate_pem}
        for name in identities:
            pair = issue(self._pair, name, days=days, now=utc_now())
            self._record(pair)
            files[f"{name}{CERTIFICATE_SUFFIX}"] = pair.certificate_pem
            files[f"{name}{KEY_SUFFIX}"] = pair.key_pem
        return files

    def _record(self, pair: Pair) -> None:
        make_directory(self.directory / "issued")
        path = self.directory / "issued" / f"{pair.certificate.serial_number:x}.crt"
        write_file(path, pair.certificate_pem)

    def _revoked(self) -> dict[int, datetime]:
        found = {}
        for path in (self.directory / "revoked").glob("*.json"):
            said = read_json(path, cap_bytes=CAP_BYTES)
            if not isinstance(said, dict) or not isinstance(said.get("revoked_s"), int):
                raise ConfigError(f"{path} is damaged", "restore it from a copy")
            found[int(path.stem, 16)] = datetime.fromtimestamp(said["revoked_s"], UTC)
        return found


def has_authority(fleet_folder: Path) -> bool:
    """Whether a fleet uses certificates."""
    return (fleet_folder / PKI_FOLDER / CA_FILE).is_file()


def check_gateway(gateway: str) -> None:
    """Whether a gateway of this id can have certificates.

    Raises:
        ConfigError: it cannot.
    """
    if not may_be_gateway(gateway):
        raise ConfigError(
            f"gateway id {gateway!r} is not of the form [A-Za-z0-9_-]{{1,64}}, or begins as a bridge's name"
        )
    for name in gateway_identities(gateway):
        check_name(name)


def is_private(name: str) -> bool:
    """Whether a credentials file must be readable by its owner only."""
    return name.endswith(KEY_SUFFIX)
