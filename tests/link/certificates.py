"""A certificate authority for one test."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class KeyPair:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    certificate: Path
    name: x509.Name
    private: ec.EllipticCurvePrivateKey

    def sign(self, common_name: str, directory: Path) -> KeyPair:
        """A certificate for a gateway, or for a broker if the name is an address."""
        private = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), self.name, private)
        if common_name[0].isdigit():
            address = x509.IPAddress(ipaddress.ip_address(common_name))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return _write(builder.sign(self.private, hashes.SHA256()), private, directory)


def make_authority(directory: Path) -> Authority:
    """A new authority."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = _name("test authority")
    builder = _builder(name, name, private).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    files = _write(builder.sign(private, hashes.SHA256()), private, directory)
    return Authority(files.certificate, name, private)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, private: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def _write(certificate: x509.Certificate, private: ec.EllipticCurvePrivateKey, directory: Path) -> KeyPair:
    directory.mkdir()
    files = KeyPair(directory / "certificate.pem", directory / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
