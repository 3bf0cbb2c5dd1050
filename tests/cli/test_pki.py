"""``server-bridge pki`` by its real processes, and what provisioning makes of an authority."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_agent.errors import ConfigError
from server_bridge.cli.pki import app
from server_bridge.pki.authority import Authority
from server_bridge.releases.provision import init_fleet
from tests.e2e.toy import toy_bundle

PROGRAM = Path(sys.executable).parent / "server-bridge"


def run(*words: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [str(PROGRAM), *(str(word) for word in words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet")
    init_fleet(directory / "bridge", toy_bundle(directory / "work").path, "toy", host="broker.plant", port=8883)
    return directory


@pytest.mark.parametrize("command", ["init", "list", "bridge"])
def test_a_folder_without_a_fleet_is_named_with_the_option_it_was_given_by(tmp_path: Path, command: str) -> None:
    error = CliRunner().invoke(app, [command, "-d", str(tmp_path)]).exception
    assert isinstance(error, ConfigError)
    assert error.problem == f"directory {tmp_path} holds no fleet: it has no bridge.toml"
    assert "-d" in error.hint


@pytest.mark.long
def test_from_authority_to_gateway(founded: Path) -> None:
    bridge, gateways = founded / "bridge", founded / "gateways"
    status, said = run("gateway", "provision", "gw0", "-o", gateways, "-c", bridge / "bridge.toml")
    assert (status, f"without certificates; for TLS: server-bridge pki init -d {bridge}" in said) == (0, True)
    assert "credentials" not in tomllib.loads((gateways / "gw0" / "agent.toml").read_text())["broker"]

    assert run("pki", "list", "-d", bridge)[0] == 2
    assert run("pki", "init", "-d", bridge)[0] == 0
    assert "already holds an authority" in run("pki", "init", "-d", bridge)[1]
    assert run("pki", "broker", "broker.plant", "-d", bridge)[0] == 0
    assert run("pki", "bridge", "-d", bridge)[0] == 0
    assert tomllib.loads((bridge / "bridge.toml").read_text())["broker"]["credentials"] == "tls"
    assert (bridge / "tls" / "bridge-toy.release.readback.key").stat().st_mode & 0o777 == 0o600
    status, said = run("pki", "bridge", "-d", bridge)
    assert (status, "never overwritten" in said) == (2, True)

    status, said = run("gateway", "provision", "gw1", "-o", gateways, "-c", bridge / "bridge.toml")
    assert (status, f"copy {bridge}/pki/broker/acl to the broker" in said) == (0, True)
    settings = tomllib.loads((gateways / "gw1" / "agent.toml").read_text())
    assert settings["broker"] == {"host": "broker.plant", "port": 8883, "credentials": "tls"}
    keys = list((gateways / "gw1" / "tls").glob("*.key"))
    assert len(keys) == 5
    assert all(key.stat().st_mode & 0o777 == 0o600 for key in keys)

    assert run("pki", "gateway", "gw0", "-o", gateways, "-d", bridge)[0] == 0
    assert tomllib.loads((gateways / "gw0" / "agent.toml").read_text())["broker"]["credentials"] == "tls"
    assert "# [source]" in (gateways / "gw0" / "agent.toml").read_text()
    assert run("pki", "gateway", "gw0", "-o", gateways, "-d", bridge)[0] == 2

    acl = bridge / "pki" / "broker" / "acl"
    assert "user gw0\n" in acl.read_text()
    status, said = run("pki", "revoke", "gw0", "-d", bridge)
    assert (status, said.count("revoked gw0")) == (0, 5)
    assert "user gw0\n" not in acl.read_text()
    assert "user gw1\n" in acl.read_text()
    status, said = run("pki", "list", "-d", bridge)
    assert (status, said.count("valid"), said.count("revoked")) == (0, 9, 5)


def test_ids_are_checked_before_anything_is_made(founded: Path) -> None:
    out = founded / "none"
    for bad in ("bridge-toy", "gw/1", "good"):
        status, _ = run("gateway", "provision", "good", bad, "-o", out, "-c", founded / "bridge" / "bridge.toml")
        assert status == 2
        assert not out.exists()


def test_ids_given_twice_and_days_without_number_make_no_certificate(tmp_path: Path) -> None:
    bridge = tmp_path / "bridge"
    init_fleet(bridge, toy_bundle(tmp_path / "work").path, "toy")
    Authority.create(bridge, "toy")
    for words in (["gateway", "gw2", "gw2", "-o", str(tmp_path)], ["broker", "h", "--days", str(10**20)]):
        status, said = run("pki", *words, "-d", bridge)
        assert status == 2, said
    assert not (bridge / "pki" / "issued").exists()
