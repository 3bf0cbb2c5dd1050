import json
from pathlib import Path
from typing import Any

import pytest

from edge_agent.wire.document import asyncapi, documents
from edge_agent.wire.table import TOPIC_TABLE
from tests.docs_build import build, main, stale
from tests.wire.golden_vectors import FOLDER
from tests.wire.readers import READERS, Reader


def test_the_documents_are_up_to_date() -> None:
    assert stale() == [], "run python -m tests.docs_build"
    assert main(["--check"]) == 0


def test_a_changed_missing_or_abandoned_document_is_stale_until_it_is_built(tmp_path: Path) -> None:
    assert set(build(tmp_path)) >= set(documents())
    assert stale(tmp_path) == []
    (tmp_path / "protocol.md").write_text("edited")
    (tmp_path / "schemas" / "Ack.json").unlink()
    (tmp_path / "schemas" / "Gone.json").write_text("{}")
    assert stale(tmp_path) == ["protocol.md", "schemas/Ack.json", "schemas/Gone.json"]
    build(tmp_path)
    assert stale(tmp_path) == []


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_a_schema_names_every_field_of_the_golden_messages(reader: Reader) -> None:
    schema = json.loads(documents()[f"schemas/{reader.name}.json"])
    assert "schema" in schema["required"]
    for path in FOLDER.glob(f"{reader.name}.*.bin"):
        value = json.loads(path.read_bytes())
        assert set(schema["required"]) <= set(value) <= set(schema["properties"])


def test_every_reference_leads_somewhere() -> None:
    pages = documents()
    api = asyncapi()
    for reference in references(api):
        if reference.startswith("#/"):
            node: Any = api
            for part in reference[2:].split("/"):
                node = node[part]
        else:
            assert reference in pages
    assert {channel["address"] for channel in api["channels"].values()} == {
        f"clma/1/{{fleet}}/{row.topic}" for row in TOPIC_TABLE
    }


def test_the_page_has_a_section_for_every_link() -> None:
    page = documents()["protocol.md"]
    headings = {line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    linked = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert linked
    assert linked <= headings


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [reference for value in node.values() for reference in references(value)]
    if isinstance(node, list):
        return [reference for value in node for reference in references(value)]
    return []
