"""What a gateway's process imports: tuf late, `cryptography` never needed."""

import subprocess
import sys
from pathlib import Path

from edge_agent.wire.codec import encode
from tests.ota.fleet_maps import FleetMaps
from tests.ota.gateway import provisioned_floors

LAZY = """
import sys
import edge_agent.ota.updater, edge_agent.ota.startup
late = {"tuf", "securesystemslib", "cryptography"} & set(sys.modules)
assert not late, late
"""

WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
from pathlib import Path
from edge_agent.link.database import open_database
from edge_agent.ota.command_keys import verify_signature
from edge_agent.ota.floors import Floors
from edge_agent.ota.trust import TrustedReleases
from edge_agent.wire.provision import read_floors
from edge_agent.wire.release import CommandKey
folder = Path(sys.argv[1])
floors = Floors(open_database(folder / "agent.db"))
root = (folder / "root.json").read_bytes()
floors.provision(read_floors((folder / "floors.json").read_bytes()), root)
trusted = TrustedReleases(folder / "trust", root, floors, lambda: float(sys.argv[2]))
trusted.accept(trusted.examine((folder / "map").read_bytes()))
keys = {"key": CommandKey(public=sys.argv[3])}
assert verify_signature(keys, "key", bytes.fromhex(sys.argv[4]), b"order")
assert not verify_signature(keys, "key", bytes.fromhex(sys.argv[4]), b"other")
"""


def run(script: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_tuf_is_imported_with_the_first_release_only() -> None:
    run(LAZY)


def test_signatures_are_verified_without_cryptography(tmp_path: Path) -> None:
    maps = FleetMaps()
    (tmp_path / "root.json").write_bytes(maps.root)
    (tmp_path / "floors.json").write_bytes(encode(provisioned_floors(maps)))
    (tmp_path / "map").write_bytes(maps.advance().payload())
    key = maps.keys.online.command
    run(
        WITHOUT_CRYPTOGRAPHY,
        *(str(tmp_path), str(maps.now_s)),
        *(str(key.public_key.keyval["public"]), key.sign(b"order").signature),
    )
