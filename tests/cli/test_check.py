"""``edge-agent check`` as a process: each thing that can be wrong, found, explained, with its remedy."""

import json
from pathlib import Path

from edge_agent.cli.exits import Exit
from edge_agent.wire.blobs import sha256_hex
from server_bridge.demo.settings_files import Value, amend
from tests.broker import CLOSED_PORT
from tests.cli.checked import Plant, check
from tests.e2e.gateway import gateway_folder, run


def test_nothing_is_wrong_where_nothing_is(plant: Plant) -> None:
    found = check(plant.settings)
    assert found.failed == []
    assert list(found.right) == [
        *("settings", "bundle", "disk", "trust root", "clock", "identity", "broker", "rights", "source"),
    ]
    assert "without TLS" not in found.saw["broker"]


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


def test_a_bundle_that_cannot_be_followed_is_found_and_the_agent_does_not_start(bridge: Path, tmp_path: Path) -> None:
    path = gateway_folder(bridge, tmp_path / "gateways", CLOSED_PORT, adaptation={"online": True})
    found = check(path)
    assert found.saw["bundle"].startswith("[adaptation] online = true, but it cannot be followed: bundle 'toy' has no")
    assert "--label-free" in found.remedy["bundle"]
    ended = run("run", "-c", str(path))
    assert ended.status == Exit.CONFIG
    assert "cannot be followed" in ended.err
    assert "--label-free" in ended.err
