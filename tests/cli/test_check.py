"""``edge-agent check`` as a process: each thing that can be wrong, found, explained, with its remedy."""

import json
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_agent.cli.exits import Exit
from edge_agent.link.events import Published, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.rights import gateway_identities
from server_bridge.demo.settings_files import Value, amend
from server_bridge.pki.acl import access_list
from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.access_list import Listed
from tests.broker import CLOSED_PORT, Mosquitto, new_mosquitto
from tests.e2e.gateway import FLEET, GATEWAY, gateway_folder, provisioned, run
from tests.link.certificates import Authority, make_authority

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


@dataclass(frozen=True)
class Checked:
    """What a check printed: by what was looked at, whether it is right and what was seen; remedies."""

    status: int
    right: dict[str, bool]
    saw: dict[str, str]
    remedy: dict[str, str]

    @property
    def failed(self) -> list[str]:
        return [what for what, ok in self.right.items() if not ok]


def check(settings: Path, *words: str, clock_s: float | None = None) -> Checked:
    """Run the command; its clock can be set."""
    if clock_s is None:
        ended = run("check", "-c", str(settings), *words)
        status, out, err = ended.status, ended.out, ended.err
    else:
        program = f"import time\ntime.time = lambda: {clock_s}\nfrom edge_agent.cli import main\nmain()"
        command = [sys.executable, "-c", program, "check", "-c", str(settings), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        status, out, err = done.returncode, done.stdout, done.stderr
    assert "Traceback" not in err, err
    found = Checked(status, {}, {}, {})
    what = ""
    for line in out.splitlines():
        if line.startswith("      remedy: "):
            found.remedy[what] = line.removeprefix("      remedy: ")
        else:
            what, _, saw = line[6:].partition(": ")
            found.right[what], found.saw[what] = line.startswith("ok"), saw
    assert status == (Exit.PROBLEM if found.failed else Exit.OK), (out, err)
    assert set(found.remedy) == set(found.failed), out
    return found


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def settings(bridge: Path, tmp_path: Path) -> Path:
    """Of a gateway whose broker is away."""
    return gateway_folder(bridge, tmp_path / "gateways", CLOSED_PORT)


@dataclass(frozen=True)
class Plant:
    """A broker with mutual TLS, and a gateway of its fleet."""

    authority: Authority
    broker: Mosquitto
    settings: Path

    @property
    def tls(self) -> Path:
        return self.settings.parent / "tls"


def credentials(authority: Authority, gateway: str, folder: Path, work: Path) -> None:
    """A folder as `server-bridge pki` makes it."""
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    for identity in gateway_identities(gateway):
        pair = authority.sign(identity, work / identity)
        (folder / f"{identity}.crt").write_bytes(pair.certificate.read_bytes())
        (folder / f"{identity}.key").write_bytes(pair.key.read_bytes())


@pytest.fixture
def plant(bridge: Path, tmp_path: Path) -> Iterator[Plant]:
    work = tmp_path / "pki"
    work.mkdir()
    authority = make_authority(work / "ca")
    own = authority.sign("127.0.0.1", work / "broker")
    broker = new_mosquitto(
        work,
        f"cafile {authority.certificate}",
        f"certfile {own.certificate}",
        f"keyfile {own.key}",
        "require_certificate true",
        "use_identity_as_username true",
        "use_username_as_clientid true",
    )
    settings = gateway_folder(bridge, tmp_path / "gateways", broker.port)
    amend(settings, {"broker": {"host": "127.0.0.1", "port": broker.port, "credentials": "tls"}})
    credentials(authority, GATEWAY, settings.parent / "tls", work)
    yield Plant(authority, broker, settings)
    broker.kill()


def test_nothing_is_wrong_where_nothing_is(plant: Plant) -> None:
    found = check(plant.settings)
    assert found.failed == []
    assert list(found.right) == [
        *("settings", "bundle", "disk", "trust root", "clock", "identity", "broker", "rights", "source"),
    ]
    assert "without TLS" not in found.saw["broker"]


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


def keep(session: MqttSession, inbox: "queue.Queue[SessionEvent]", topic: str, payload: bytes) -> None:
    """Publish a retained message and wait for the broker's answer."""
    token = session.publish(topic, payload, retain=True)
    while not isinstance(event := inbox.get(timeout=60.0), Published) or event.token != token:
        continue
    assert event.ok


@pytest.fixture
def listed(bridge: Path, tmp_path: Path) -> Iterator[Listed]:
    one = Listed(bridge, tmp_path)
    yield one
    one.broker.kill()


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


@pytest.mark.parametrize(("behind_s", "says"), [(30 * YEAR_S, "a release was signed"), (-30 * YEAR_S, "ten years")])
def test_a_clock_off_against_the_signed_time(plant: Plant, behind_s: float, says: str) -> None:
    """The broker is reached nevertheless, as the agent reaches it."""
    found = check(plant.settings, clock_s=time.time() - behind_s)
    assert "clock" in found.failed
    assert says in found.saw["clock"]
    assert "timedatectl" in found.remedy["clock"]
    assert "broker" not in found.failed


def test_a_clock_off_against_the_time_that_the_agent_has_seen(settings: Path) -> None:
    data = settings.parent / "data"
    data.mkdir()
    seen_s = time.time() + 90 * DAY_S
    (data / "status.json").write_text(json.dumps({"clock": {"trusted": False, "floor_s": seen_s}}))
    assert check(settings).failed == ["clock", "broker"]
    assert check(settings, clock_s=seen_s + DAY_S).failed == ["broker"]


@pytest.mark.parametrize("days", [30, -3])
def test_a_clock_off_against_the_brokers_certificate(plant: Plant, days: int) -> None:
    """The certificates of this test are valid for a day; the last signed time says nothing against the clock."""
    bridge = plant.settings.parent.parent.parent / "old"
    bundle = next((plant.settings.parent / "bundle").parent.glob("bundle"))
    init_fleet(bridge, bundle, FLEET, now_s=time.time() - 9 * DAY_S)
    (old,) = provision_gateway(bridge, [GATEWAY], bridge / "gateways")
    (plant.settings.parent / "floors.json").write_bytes((old / "floors.json").read_bytes())
    found = check(plant.settings, clock_s=time.time() + days * DAY_S)
    assert found.failed == ["identity", "broker"]
    assert "the clock says" in found.saw["broker"]
    assert ("expired on" if days > 0 else "is valid from") in found.saw["broker"]
    assert "set this machine's clock" in found.remedy["broker"]
    assert "set the clock" in found.remedy["identity"]


def test_a_bundle_that_is_too_new(settings: Path) -> None:
    path = settings.parent / "bundle" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"minimum_agent_version": "9.1.0"}))
    found = check(settings)
    assert found.failed == ["bundle", "broker"]
    assert "needs clma-edge>=9.1.0, this is 0.1.0" in found.saw["bundle"]
    assert found.remedy["bundle"] == "upgrade clma-edge"


def test_a_graph_that_is_too_new_for_onnxruntime(settings: Path) -> None:
    import onnx

    folder = settings.parent / "bundle"
    model = onnx.load(folder / "infer.onnx", load_external_data=False)
    model.opset_import[0].version = 99
    graph = model.SerializeToString()
    (folder / "infer.onnx").write_bytes(graph)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["infer.onnx"] = sha256_hex(graph)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = check(settings)
    assert "bundle" in found.failed
    assert "refused by onnxruntime" in found.saw["bundle"]
    assert "upgrade onnxruntime" in found.remedy["bundle"]


def test_a_disk_that_is_short_of_what_the_settings_may_take(settings: Path) -> None:
    sink: dict[str, Value] = {"kind": "jsonl", "path": "served.jsonl", "max_bytes": 2**40}
    amend(settings, {"outbox": {"max_bytes": 2**40}, "sink": sink})
    found = check(settings)
    assert found.failed == ["disk", "broker"]
    assert "MiB free; these settings may take 3145" in found.saw["disk"]
    assert "[outbox] max_bytes" in found.remedy["disk"]


def test_a_data_folder_that_is_a_file(settings: Path) -> None:
    settings.with_name("data").write_bytes(b"a file")
    found = check(settings)
    assert found.failed == ["disk", "broker"]


def test_a_recording_that_is_silent(settings: Path) -> None:
    text = settings.read_text().replace("rate_hz = 200.0", "rate_hz = 0.01")
    settings.write_text(text)
    found = check(settings, "--source-wait-s", "1")
    assert found.failed == ["broker", "source"]
    assert "is silent: no sample in 1 s" in found.saw["source"]
    assert "rate_hz" in found.remedy["source"]


def live_source(settings: Path, port: int) -> None:
    head, _, tail = settings.read_text().partition("[source]")
    rest = tail.partition("\n[")
    source = (
        f'[source]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {port}\n'
        'samples_topic = "plant/samples"\nlabels_topic = "plant/labels"\n'
    )
    settings.write_text(head + source + rest[1] + rest[2])


def test_a_live_source_that_is_silent_or_closed(bridge: Path, tmp_path: Path, mosquitto: Mosquitto) -> None:
    settings = gateway_folder(bridge, tmp_path / "gateways", mosquitto.port)
    live_source(settings, mosquitto.port)
    found = check(settings, "--source-wait-s", "1")
    assert found.failed == ["source"]
    assert "'plant/samples' at 127.0.0.1" in found.saw["source"]
    assert "is silent: no message in 1 s" in found.saw["source"]
    assert "samples_topic" in found.remedy["source"]
    live_source(settings, CLOSED_PORT)
    found = check(settings, "--source-wait-s", "1")
    assert (found.failed, "nothing listens there" in found.saw["source"]) == (["source"], True)
    assert "check [source] host and port" in found.remedy["source"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_live_source_that_speaks(bridge: Path, tmp_path: Path, mosquitto: Mosquitto, fits: bool) -> None:
    settings = gateway_folder(bridge, tmp_path / "gateways", mosquitto.port)
    live_source(settings, mosquitto.port)
    width = 8 if fits else 7
    sample = {"id": "a", "time": 1.0, "features": {"x": [0.0] * width}}
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    plant = MqttSession(
        BrokerSettings("127.0.0.1", mosquitto.port), "plant", clean_start=True, session_expiry_s=0, inbox=inbox
    )
    plant.start()
    try:
        keep(plant, inbox, "plant/samples", json.dumps(sample).encode())
        found = check(settings, "--source-wait-s", "30" if fits else "4")
    finally:
        plant.stop(2.0)
    assert found.failed == ([] if fits else ["source"])
    if not fits:
        assert "features.x: shape [7], [8] is needed" in found.saw["source"]


def test_a_bundle_that_cannot_be_followed_is_found_and_the_agent_does_not_start(bridge: Path, tmp_path: Path) -> None:
    path = gateway_folder(bridge, tmp_path / "gateways", CLOSED_PORT, adaptation={"online": True})
    found = check(path)
    assert found.saw["bundle"].startswith("[adaptation] online = true, but it cannot be followed: bundle 'toy' has no")
    assert "--label-free" in found.remedy["bundle"]
    ended = run("run", "-c", str(path))
    assert ended.status == Exit.CONFIG
    assert "cannot be followed" in ended.err
    assert "--label-free" in ended.err
