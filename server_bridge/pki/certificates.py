"""X.509 by the `cryptography` library: ECDSA P-256, which mosquitto's OpenSSL and Python's both take."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edge_agent.errors import ConfigError
from server_bridge.host_name import is_host_name

MAX_NAME_CHARS = 64  # X.520's upper bound of a common name
BACKDATED = timedelta(days=1)  # a broker whose clock is a little slow takes a certificate made just now


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as a file holds it."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as a file holds it, unencrypted: services start unattended."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_authority(fleet: str, *, days: int, now: datetime) -> Pair:
    """A self-signed authority that can sign certificates and revocation lists, and no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"clma-edge {fleet}"[:MAX_NAME_CHARS])
    builder = _builder(name, name, key.public_key(), now, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Pair(builder.sign(key, SHA256()), key)


def issue(authority: Pair, name: str, *, hosts: Sequence[str] = (), days: int, now: datetime) -> Pair:
    """A certificate for a client, or with ``hosts`` for the broker; it never outlives its authority.

    Raises:
        ConfigError: the name is too long, or the authority has expired.
    """
    check_name(name)
    ends = authority.certificate.not_valid_after_utc
    if ends <= now:
        raise ConfigError(f"the authority expired on {ends:%Y-%m-%d}", "make a new one in an empty folder")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        _name(name), authority.certificate.subject, key.public_key(), now, min(ends, now + timedelta(days=days))
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return Pair(builder.sign(authority.key, SHA256()), key)


def check_name(name: str) -> None:
    """Whether it fits a certificate.

    Raises:
        ConfigError: it is too long.
    """
    if len(name) > MAX_NAME_CHARS:
        raise ConfigError(
            f"{name!r} is longer than the {MAX_NAME_CHARS} characters of a certificate's common name",
            "with TLS a gateway's id has at most 58 characters, a fleet's name at most 40",
        )


def revocation_list(authority: Pair, revoked: Sequence[tuple[int, datetime]], *, now: datetime) -> bytes:
    """A PEM revocation list of (serial, when).

    It is a local file, made anew with every change, so it is valid as long as the authority: a list
    that expired would shut every gateway out.
    """
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=authority.certificate.subject,
        last_update=now - BACKDATED,
        next_update=authority.certificate.not_valid_after_utc,
    )
    for serial, when in revoked:
        entry = x509.RevokedCertificateBuilder(serial_number=serial, revocation_date=when)
        builder = builder.add_revoked_certificate(entry.build())
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
    )
    builder = builder.add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
    return builder.sign(authority.key, SHA256()).public_bytes(Encoding.PEM)


def read_pair(certificate: bytes, key: bytes) -> Pair:
    """The authority's files.

    Raises:
        ValueError: no certificate, no P-256 key, or they do not belong together.
    """
    parsed = load_pem_private_key(key, password=None)
    if not isinstance(parsed, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is no elliptic-curve key")
    pair = Pair(x509.load_pem_x509_certificate(certificate), parsed)
    if pair.certificate.public_key() != parsed.public_key():
        raise ValueError("certificate and key do not belong together")
    return pair


def common_name(certificate: x509.Certificate) -> str:
    """Whom a certificate names."""
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def is_client(certificate: x509.Certificate) -> bool:
    """Whether it was issued to a gateway's or the bridge's connection, not to the broker."""
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def utc_now() -> datetime:
    """Now, in whole seconds: certificates know no finer time."""
    return datetime.now(UTC).replace(microsecond=0)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not is_host_name(host):
        raise ConfigError(f"{host!r} is neither a host name nor an address", "write it as gateways name it")
    return x509.DNSName(host)
