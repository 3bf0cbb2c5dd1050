"""onnxruntime does not report a plant to its maker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "module", ["edge_agent.model.session", "edge_agent.training.worker", "server_bridge.bundles.build"]
)
def test_nothing_is_written_or_queued_for_it(tmp_path: Path, module: str) -> None:
    """Whoever loads it: `onnxruntime` alone leaves files here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    subprocess.run(
        [sys.executable, "-c", f"import {module}, onnxruntime; onnxruntime.SessionOptions()"],
        env=environment | {"HOME": str(tmp_path)},
        check=True,
        timeout=60,
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
