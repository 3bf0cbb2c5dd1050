import datetime
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.errors import ConfigError
from edge_agent.link.certificate import read_certificate
from tests.link.certificates import make_authority

_KEY = ec.derive_private_key(7, ec.SECP256R1())


def certificate(name: str, begins: datetime.datetime, ends: datetime.datetime) -> bytes:
    """Another common name stands in the issuer, and other attributes about ours."""
    attributes = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "factory")]
    if name:
        attributes.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, name))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")]))
        .public_key(_KEY.public_key())
        .serial_number(7)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(_KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


_TIMES = st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(2090, 1, 1), timezones=st.just(datetime.UTC))
_EACH = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_EACH
@given(name=st.from_regex(r"[A-Za-z0-9_.-]{0,64}", fullmatch=True), begins=_TIMES, years=st.integers(1, 60))
def test_it_reads_what_cryptography_wrote(tmp_path: Path, name: str, begins: datetime.datetime, years: int) -> None:
    begins = begins.replace(microsecond=0)
    ends = begins + years * datetime.timedelta(days=365)
    path = tmp_path / "certificate.pem"
    path.write_bytes(b"Subject: for people\n" + certificate(name, begins, ends) + b"-----BEGIN CERTIFICATE-----\n")
    facts = read_certificate(path)
    assert (facts.common_name, facts.begins_s, facts.ends_s) == (name, begins.timestamp(), ends.timestamp())


def test_the_first_of_a_chain_is_read(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "ca")
    own = authority.sign("gw1", tmp_path / "gw1")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(own.certificate.read_bytes() + authority.certificate.read_bytes())
    assert read_certificate(chain).common_name == "gw1"


@_EACH
@given(place=st.integers(0, 600), byte=st.integers(0, 255), length=st.integers(0, 700))
def test_damage_is_a_config_error_or_a_reading(tmp_path: Path, place: int, byte: int, length: int) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    der = bytearray(ssl.PEM_cert_to_DER_cert(certificate("gw1", now, now + datetime.timedelta(days=9)).decode()))
    der[place % len(der)] = byte
    path = tmp_path / "certificate.pem"
    path.write_text(ssl.DER_cert_to_PEM_cert(bytes(der[:length])))
    with suppress(ConfigError):
        read_certificate(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"])
def test_what_is_no_pem_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "certificate.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"certificate\.pem is no certificate"):
        read_certificate(path)
