import stat
import tomllib
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError
from edge_agent.link.database import open_database
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.ota.floors import Floors
from edge_agent.ota.trust import TrustedReleases
from edge_agent.wire.provision import read_floors
from edge_agent.wire.release import FLEET_TARGET, bundle_target, cohort_target
from server_bridge.releases.keys import FleetKeys, OnlineKeys
from server_bridge.releases.provision import init_fleet, provision_gateway
from server_bridge.releases.record import FileReleaseBook
from server_bridge.store.blobs import BlobFolder
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return tiny_bundle(tmp_path / "bundle")


def test_a_new_fleet_has_keys_settings_and_release_1(tmp_path: Path, bundle: Bundle) -> None:
    record = init_fleet(tmp_path / "fleet", bundle.path, "plant", host="broker", port=1884)
    settings = tomllib.loads((tmp_path / "fleet" / "bridge.toml").read_text())
    assert settings == {"bridge": {"fleet": "plant"}, "broker": {"host": "broker", "port": 1884}}
    latest = FileReleaseBook(tmp_path / "fleet" / "releases").latest()
    assert latest is not None
    assert latest[0] == record
    assert record.number == 1
    assert record.members == {}
    blobs = BlobFolder(tmp_path / "fleet" / "blobs")
    assert all(one.digest in blobs for one in record.blobs)
    assert load_bundle(tmp_path / "fleet" / "bundles" / bundle.digest).digest == bundle.digest
    for path in (tmp_path / "fleet" / "keys").rglob("*.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_gateway_gets_trusts_release_1(tmp_path: Path, bundle: Bundle) -> None:
    record = init_fleet(tmp_path / "fleet", bundle.path, "plant", port=1884)
    (folder, other) = provision_gateway(tmp_path / "fleet", ["gw-1", "gw-2"], tmp_path / "out")
    settings = tomllib.loads((folder / "agent.toml").read_text())
    assert settings["gateway"]["id"] == "gw-1"
    assert settings["broker"] == {"host": "127.0.0.1", "port": 1884}
    assert other.name == "gw-2"
    assert load_bundle(folder / settings["gateway"]["bundle"]).digest == bundle.digest
    database = open_database(tmp_path / "agent.db")
    floors = Floors(database)
    root = (folder / settings["gateway"]["root"]).read_bytes()
    floors.provision(read_floors((folder / settings["gateway"]["floors"]).read_bytes()), root)
    trusted = TrustedReleases(tmp_path / "trust", root, floors, lambda: record.created_s)
    latest = FileReleaseBook(tmp_path / "fleet" / "releases").latest()
    assert latest is not None
    verified = trusted.examine(latest[1])
    for name in (FLEET_TARGET, bundle_target(bundle.digest), cohort_target(bundle.digest, "root")):
        assert verified.target(name) == record.targets[name]
    database.close()


def test_wrong_names_and_taken_folders_are_named(tmp_path: Path, bundle: Bundle) -> None:
    with pytest.raises(ConfigError, match="fleet name"):
        init_fleet(tmp_path / "fleet", bundle.path, "no/fleet")
    with pytest.raises(ConfigError, match="no fleet"):
        provision_gateway(tmp_path / "fleet", ["gw"], tmp_path / "out")
    init_fleet(tmp_path / "fleet", bundle.path, "plant")
    with pytest.raises(ConfigError, match="already holds"):
        init_fleet(tmp_path / "fleet", bundle.path, "plant")
    with pytest.raises(ConfigError, match="gateway id"):
        provision_gateway(tmp_path / "fleet", ["gw/1"], tmp_path / "out")
    provision_gateway(tmp_path / "fleet", ["gw"], tmp_path / "out")
    with pytest.raises(ConfigError, match="exists already"):
        provision_gateway(tmp_path / "fleet", ["gw"], tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"junk", b"{}", None], ids=["empty", "junk", "no metadata", "absent"])
def test_a_damaged_root_of_trust_is_handed_to_nobody(tmp_path: Path, bundle: Bundle, content: bytes | None) -> None:
    init_fleet(tmp_path / "fleet", bundle.path, "plant")
    (tmp_path / "fleet" / "root.json").unlink()
    if content is not None:
        (tmp_path / "fleet" / "root.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"root\.json.*backup"):
        provision_gateway(tmp_path / "fleet", ["gw1"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_keys_are_read_back_with_their_threshold(tmp_path: Path) -> None:
    made = FleetKeys.create(tmp_path / "keys", root_keys=3, root_threshold=2)
    read = FleetKeys.load(tmp_path / "keys")
    assert read.root_threshold == 2
    assert [one.public_key.keyid for one in read.root] == [one.public_key.keyid for one in made.root]
    assert OnlineKeys.load(tmp_path / "keys").command_id == made.online.command_id
    with pytest.raises(ConfigError, match="already holds keys"):
        FleetKeys.create(tmp_path / "keys")
    with pytest.raises(ConfigError, match="root_threshold"):
        FleetKeys.generate(root_keys=1, root_threshold=2)
    (tmp_path / "keys" / "online" / "command.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be used"):
        OnlineKeys.load(tmp_path / "keys")
