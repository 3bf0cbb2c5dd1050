"""Certificates judged by OpenSSL (through Python's ssl) and by the library's own verifier."""

import ssl
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, ServerVerifier, Store, VerificationError

from edge_agent.errors import ConfigError
from server_bridge.pki.certificates import Pair, common_name, issue, make_authority, read_pair, revocation_list, utc_now

NOW = utc_now()


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority("toy", days=100, now=NOW)


def _server_verifier(authority: Pair, host: str) -> ServerVerifier:
    builder = PolicyBuilder().store(Store([authority.certificate])).time(NOW)
    try:
        return builder.build_server_verifier(x509.IPAddress(ip_address(host)))
    except ValueError:
        return builder.build_server_verifier(x509.DNSName(host))


def test_a_broker_certificate_is_good_for_its_hosts_only(authority: Pair) -> None:
    pair = issue(authority, "broker", hosts=["broker.plant", "10.1.2.3"], days=10, now=NOW)
    for host in ("broker.plant", "10.1.2.3"):
        _server_verifier(authority, host).verify(pair.certificate, [])
    for host in ("other.plant", "10.1.2.4"):
        with pytest.raises(VerificationError):
            _server_verifier(authority, host).verify(pair.certificate, [])
    usage = pair.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_gateway_certificate_cannot_serve(authority: Pair) -> None:
    pair = issue(authority, "gw1.up", days=10, now=NOW)
    usage = pair.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert common_name(pair.certificate) == "gw1.up"
    assert not pair.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_no_certificate_outlives_its_authority(authority: Pair) -> None:
    pair = issue(authority, "gw1", days=10_000, now=NOW)
    assert pair.certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc
    assert pair.certificate.not_valid_before_utc < NOW
    with pytest.raises(ConfigError, match="expired"):
        issue(authority, "gw1", days=1, now=NOW + timedelta(days=101))


def test_serials_differ(authority: Pair) -> None:
    serials = {issue(authority, "gw1", days=1, now=NOW).certificate.serial_number for _ in range(20)}
    assert len(serials) == 20
    assert all(serial.bit_length() > 64 for serial in serials)


@pytest.mark.parametrize("length", [64, 65])
def test_names_too_long_for_a_certificate(authority: Pair, length: int) -> None:
    if length == 64:
        assert common_name(issue(authority, "g" * 64, days=1, now=NOW).certificate) == "g" * 64
    else:
        with pytest.raises(ConfigError, match="longer than the 64"):
            issue(authority, "g" * 65, days=1, now=NOW)


@pytest.mark.parametrize("host", ["bröker", "", ".", "a b", "a\n", "h..x", "-x", "*", "1.2.3.4/8", "a" * 254, "a" * 64])
def test_a_host_that_is_none_is_named(authority: Pair, host: str) -> None:
    with pytest.raises(ConfigError, match="neither a host name nor an address") as caught:
        issue(authority, "broker", hosts=[host], days=1, now=NOW)
    assert repr(host) in caught.value.problem


@pytest.mark.parametrize("host", ["broker.plant.example", "Line_1", "4u.plant.", "a" * 63, "10.0.0.7", "::1"])
def test_a_host_may_be_a_name_or_an_address(authority: Pair, host: str) -> None:
    issue(authority, "broker", hosts=[host], days=1, now=NOW)


def test_the_revocation_list_is_valid_as_long_as_the_authority(authority: Pair) -> None:
    crl = x509.load_pem_x509_crl(revocation_list(authority, [(7, NOW), (2**150, NOW)], now=NOW))
    assert crl.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type]
    assert crl.next_update_utc == authority.certificate.not_valid_after_utc
    assert crl.last_update_utc < NOW
    assert {entry.serial_number for entry in crl} == {7, 2**150}


def test_files_that_do_not_belong_together(authority: Pair, tmp_path: Path) -> None:
    other = make_authority("other", days=1, now=NOW)
    again = read_pair(authority.certificate_pem, authority.key_pem)
    assert again.certificate == authority.certificate
    with pytest.raises(ValueError, match="belong together"):
        read_pair(authority.certificate_pem, other.key_pem)
    for name, content in (("c.crt", authority.certificate_pem), ("c.key", authority.key_pem)):
        (tmp_path / name).write_bytes(content)
    ssl.create_default_context().load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
