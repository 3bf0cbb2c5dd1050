import stat
from pathlib import Path

import pytest
from cryptography import x509

from edge_agent.errors import ConfigError
from edge_agent.wire.rights import gateway_identities
from server_bridge.pki.authority import Authority, has_authority

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "mosquitto" / "acl"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path, "fleet")


def _crl(authority: Authority) -> set[int]:
    return {
        entry.serial_number for entry in x509.load_pem_x509_crl((authority.directory / "broker/crl.pem").read_bytes())
    }


def _users(authority: Authority) -> list[str]:
    lines = (authority.directory / "broker" / "acl").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("user ")]


def test_an_authority_is_made_once_and_found_again(tmp_path: Path) -> None:
    assert not has_authority(tmp_path)
    made = Authority.create(tmp_path, "fleet")
    assert has_authority(tmp_path)
    key = tmp_path / "pki" / "ca.key"
    before = key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="already holds an authority"):
        Authority.create(tmp_path, "fleet")
    assert key.read_bytes() == before
    assert Authority.load(tmp_path, "fleet").gateway("gw1")["ca.crt"] == made.gateway("gw2")["ca.crt"]


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt is not there"):
        Authority.load(tmp_path, "fleet")
    Authority.create(tmp_path, "fleet")
    key = tmp_path / "pki" / "ca.key"
    kept = key.read_bytes()
    key.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="damaged"):
        Authority.load(tmp_path, "fleet")
    key.unlink()
    with pytest.raises(ConfigError, match=r"ca\.key is not there"):
        Authority.load(tmp_path, "fleet")
    key.write_bytes(kept)
    Authority.load(tmp_path, "fleet").gateway("gw1")
    record = next((tmp_path / "pki" / "issued").glob("*.crt"))
    record.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=record.name):
        Authority.load(tmp_path, "fleet").issued()


def test_a_gateway_gets_a_pair_for_each_connection(authority: Authority) -> None:
    files = authority.gateway("gw1")
    names = {f"{name}{suffix}" for name in gateway_identities("gw1") for suffix in (".crt", ".key")}
    assert set(files) == names | {"ca.crt"}
    assert sorted(one.name for one in authority.issued()) == sorted(gateway_identities("gw1"))
    assert not any(b"PRIVATE" in path.read_bytes() for path in (authority.directory / "issued").iterdir())


@pytest.mark.parametrize("gateway", ["", "gw 1", "gw1.up", "bridge-fleet", "bridge-x", "g" * 59, "gw/1", "gw+"])
def test_ids_that_cannot_be(authority: Authority, gateway: str) -> None:
    with pytest.raises(ConfigError):
        authority.gateway(gateway)
    assert authority.issued() == []


def test_the_brokers_key_is_never_overwritten(authority: Authority) -> None:
    folder = authority.broker(["broker.plant", "127.0.0.1"])
    assert stat.S_IMODE((folder / "broker.key").stat().st_mode) == 0o600
    before = (folder / "broker.key").read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        authority.broker(["broker.plant"])
    assert (folder / "broker.key").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"ca.crt", "crl.pem", "acl", "broker.crt", "broker.key"}


def test_revoking_takes_every_connection_and_every_right(authority: Authority) -> None:
    authority.gateway("gw1")
    authority.gateway("gw10")
    authority.renew_broker_files()
    assert _users(authority) == ["gw1", "gw1.down", "gw1.base", "gw1.up", "gw10", "gw10.down", "gw10.base", "gw10.up"]
    gone = authority.revoke("gw1")
    assert sorted(one.name for one in gone) == sorted(gateway_identities("gw1"))
    assert _crl(authority) == {one.serial for one in gone}
    assert _users(authority) == ["gw10", "gw10.down", "gw10.base", "gw10.up"]
    with pytest.raises(ConfigError, match="no valid certificate"):
        authority.revoke("gw1")
    authority.gateway("gw1")
    authority.renew_broker_files()
    assert "gw1" in _users(authority)
    assert _crl(authority) == {one.serial for one in gone}


def test_one_connection_can_be_revoked(authority: Authority) -> None:
    authority.gateway("gw1")
    assert [one.name for one in authority.revoke("gw1.up")] == ["gw1.up"]
    assert _users(authority) == ["gw1", "gw1.down", "gw1.base"]


def test_the_brokers_own_certificate_gives_no_rights(authority: Authority) -> None:
    authority.broker(["broker"])
    assert _users(authority) == []


def test_the_example_in_deploy_is_what_is_made(authority: Authority) -> None:
    authority.bridge()
    authority.gateway("gw1")
    authority.gateway("gw2")
    authority.renew_broker_files()
    assert EXAMPLE.read_text() == (authority.directory / "broker" / "acl").read_text()
