"""What a certificate file says of itself: its common name and its dates; nothing is verified here.

Python reads only the peer's certificates, and `cryptography` is too heavy for a gateway, so this walks the few
fields of X.509's DER (RFC 5280, 4.1) itself.
"""

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.link.durable import read_file

CAP_BYTES = 256 * 1024
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _SET, _OID, _VERSION, _UTC_TIME, _GENERAL_TIME = 0x30, 0x31, 0x06, 0xA0, 0x17, 0x18
_COMMON_NAME = bytes.fromhex("550403")


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Whose certificate, and from when to when (seconds since 1970)."""

    common_name: str
    begins_s: float
    ends_s: float


def read_certificate(path: Path) -> CertificateFacts:
    """The first certificate of a PEM file.

    Raises:
        StorageError: the file cannot be read.
        ConfigError: it is no certificate.
    """
    found = _PEM.search(read_file(path, cap_bytes=CAP_BYTES))
    try:
        if found is None:
            raise ValueError("no PEM")
        return _facts(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (ValueError, IndexError):
        raise ConfigError(f"{path} is no certificate", "it must be a PEM file of X.509") from None


def _facts(der: bytes) -> CertificateFacts:
    (whole,) = _items(der, _SEQUENCE)
    fields = _items(_items(whole[1])[0][1])
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    _, _, _, validity, subject = fields[:5]
    begins, ends = _items(validity[1])
    return CertificateFacts(_common_name(subject[1]), _time_s(*begins), _time_s(*ends))


def _items(data: bytes, only: int | None = None) -> list[tuple[int, bytes]]:
    """The tagged values that the bytes are a sequence of."""
    found, at = [], 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data) or only not in (None, tag):
            raise ValueError("cut off, or another tag")
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _common_name(names: bytes) -> str:
    for tag, group in _items(names):
        for _, pair in _items(group) if tag == _SET else []:
            (kind, name), (_, value) = _items(pair)
            if (kind, name) == (_OID, _COMMON_NAME):
                return value.decode("utf-8")
    return ""


def _time_s(tag: int, value: bytes) -> float:
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERAL_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
