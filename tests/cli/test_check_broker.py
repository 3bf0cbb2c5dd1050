"""``edge-agent check``: certificates, the broker, and what it lets the gateway do."""

import queue
from pathlib import Path

from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from server_bridge.demo.settings_files import amend
from server_bridge.pki.acl import access_list
from tests.access_list import Listed
from tests.broker import Mosquitto, new_mosquitto
from tests.cli.checked import Plant, check, credentials, keep
from tests.e2e.gateway import FLEET, GATEWAY, gateway_folder
from tests.link.certificates import make_authority


def test_another_fleets_authority(plant: Plant, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    (plant.tls / "ca.crt").write_bytes(other.certificate.read_bytes())
    found = check(plant.settings)
    assert found.failed == ["broker"]
    assert "not signed by the authority in" in found.saw["broker"]
    assert "ca.crt" in found.remedy["broker"]


def test_certificates_of_another_fleet(plant: Plant, tmp_path: Path) -> None:
    """The broker's refusal comes after the handshake."""
    other = make_authority(tmp_path / "other")
    credentials(other, GATEWAY, tmp_path / "made", tmp_path)
    for file in (tmp_path / "made").glob(f"{GATEWAY}*"):
        (plant.tls / file.name).write_bytes(file.read_bytes())
    found = check(plant.settings)
    assert found.failed == ["broker"]
    assert "it refuses our certificate" in found.saw["broker"]
    assert "server-bridge pki" in found.remedy["broker"]


def test_a_wrong_id(plant: Plant) -> None:
    plant.settings.write_text(plant.settings.read_text().replace(f'id = "{GATEWAY}"', 'id = "gw2"'))
    found = check(plant.settings)
    assert found.failed == ["identity", "broker"]
    assert f"gw2.crt is not there; there are: {GATEWAY}, {GATEWAY}.base" in found.saw["identity"]
    assert "[gateway] id" in found.remedy["identity"]


def test_a_certificate_of_another_gateway(plant: Plant, tmp_path: Path) -> None:
    theirs = plant.authority.sign("gw2", tmp_path / "gw2")
    (plant.tls / f"{GATEWAY}.crt").write_bytes(theirs.certificate.read_bytes())
    (plant.tls / f"{GATEWAY}.key").write_bytes(theirs.key.read_bytes())
    found = check(plant.settings)
    assert found.failed == ["identity"]
    assert f"is of 'gw2', this is '{GATEWAY}'" in found.saw["identity"]


def test_a_key_of_another_certificate(plant: Plant) -> None:
    (plant.tls / f"{GATEWAY}.up.key").write_bytes((plant.tls / f"{GATEWAY}.key").read_bytes())
    found = check(plant.settings)
    assert found.failed == ["identity"]
    assert f"{GATEWAY}.up.key is not the key of" in found.saw["identity"]


def test_a_file_that_is_no_certificate(plant: Plant) -> None:
    (plant.tls / f"{GATEWAY}.down.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    found = check(plant.settings)
    assert found.failed == ["identity"]
    assert "is no certificate" in found.saw["identity"]


def test_a_host_that_is_not_in_the_brokers_certificate(plant: Plant) -> None:
    plant.settings.write_text(plant.settings.read_text().replace('host = "127.0.0.1"', 'host = "localhost"'))
    found = check(plant.settings)
    assert found.failed == ["broker"]
    assert "for another name" in found.saw["broker"]
    assert "server-bridge pki broker HOST" in found.remedy["broker"]


def test_a_closed_port(settings: Path) -> None:
    found = check(settings)
    assert found.failed == ["broker"]
    assert "nothing listens there" in found.saw["broker"]
    assert "[broker] host and port" in found.remedy["broker"]


def test_an_unknown_name(settings: Path) -> None:
    settings.write_text(settings.read_text().replace('host = "127.0.0.1"', 'host = "broker.invalid"'))
    found = check(settings)
    assert (found.failed, "not known" in found.saw["broker"]) == (["broker"], True)


def test_tls_to_a_port_without_it_and_the_reverse(
    plant: Plant, mosquitto: Mosquitto, bridge: Path, tmp_path: Path
) -> None:
    amend(plant.settings, {"broker": {"host": "127.0.0.1", "port": mosquitto.port, "credentials": "tls"}})
    found = check(plant.settings)
    assert found.failed == ["broker"]
    assert "speaks no TLS" in found.saw["broker"]
    found = check(gateway_folder(bridge, tmp_path / "plain", plant.broker.port))
    assert found.failed == ["broker"]
    assert "credentials" in found.remedy["broker"]


def test_an_access_list_that_does_not_know_the_gateway(listed: Listed) -> None:
    found = check(listed.settings)
    assert found.failed == ["rights"]
    assert f"publishing on clma/1/{FLEET}/up/{GATEWAY}/presence is denied: Not authorized" in found.saw["rights"]
    assert "pki/broker/acl" in found.remedy["rights"]
    assert "reload" in found.remedy["rights"]
    listed.admit(access_list(FLEET, [GATEWAY]))
    found = check(listed.settings)
    assert found.failed == []
    assert "may publish" in found.saw["rights"]


def test_an_access_list_that_lets_the_gateway_read_only_half(listed: Listed) -> None:
    half = f"topic write #\nuser {GATEWAY}\ntopic write #\ntopic read clma/1/{FLEET}/all/bridge\n"
    listed.admit(half)
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    bridge = MqttSession(
        BrokerSettings("127.0.0.1", listed.broker.port), "station", clean_start=True, session_expiry_s=0, inbox=inbox
    )
    bridge.start()
    try:
        for row in ("release", "bridge"):
            keep(bridge, inbox, f"clma/1/{FLEET}/all/{row}", b"kept")
        topics = f"clma/1/{FLEET}/all/release and clma/1/{FLEET}/all/bridge"
        listed.admit("topic write #\n" + access_list(FLEET, [GATEWAY]))
        assert check(listed.settings).saw["rights"].endswith(f"and read {topics}")
        listed.admit(half)
        assert check(listed.settings).saw["rights"].endswith(f"but hears nothing on clma/1/{FLEET}/all/release")
    finally:
        bridge.stop(2.0)


def test_a_broker_that_lets_in_nobody_without_a_password(bridge: Path, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    broker = new_mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path / 'passwords'}")
    try:
        found = check(gateway_folder(bridge, tmp_path / "gateways", broker.port))
    finally:
        broker.kill()
    assert found.failed == ["broker"]
    assert "refused" in found.saw["broker"]
    assert "username and password" in found.remedy["broker"]
