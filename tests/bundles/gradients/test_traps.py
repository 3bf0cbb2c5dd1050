"""What onnxruntime does wrong in silence is not used anywhere."""

import re
from pathlib import Path

import pytest

import edge_agent
import server_bridge

RACING = re.compile(r"emit(_as)?\([^()]*\"ScatterND\"")
"""Its add loses sums on repeated indices with more than one thread; ScatterElements adds exactly."""
MIXING = re.compile(r"\.add_initializer\b")
"""Of SessionOptions: it kept an old convolution's weight; `add_external_initializers` does not."""


@pytest.mark.parametrize("trap", [RACING, MIXING], ids=["ScatterND", "add_initializer"])
@pytest.mark.parametrize("package", [edge_agent, server_bridge], ids=["edge_agent", "server_bridge"])
def test_no_code_uses_a_trap(package: object, trap: re.Pattern[str]) -> None:
    (root,) = package.__path__  # type: ignore[attr-defined]  # a module, to pytest an object
    sources = {path.name: path.read_text(encoding="utf-8") for path in Path(root).rglob("*.py")}
    assert sources
    assert [name for name, text in sources.items() if trap.search(text)] == []


def test_the_traps_are_found_where_they_are() -> None:
    assert RACING.search('graph.emit("ScatterND", zeros, places, values, reduction="add")')
    assert MIXING.search("options.add_initializer(name, value)")
    assert not MIXING.search("options.add_external_initializers(names, values)")
