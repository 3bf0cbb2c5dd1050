import json
from pathlib import Path
from typing import Any

import pytest

from edge_agent.wire.codec import encode
from tests.wire.golden_values import payloads
from tests.wire.golden_vectors import DESCRIBE, FOLDER
from tests.wire.make_golden import make
from tests.wire.readers import READERS

NAMES = sorted(path.stem for path in FOLDER.glob("*.bin"))
MESSAGES = {reader.name: reader for reader in READERS}


@pytest.mark.parametrize("name", NAMES)
def test_released_bytes_still_mean_the_same(name: str) -> None:
    payload = (FOLDER / f"{name}.bin").read_bytes()
    wanted = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(DESCRIBE[name.split(".")[0]](payload)))
    assert without_later_fields(found, wanted) == wanted


@pytest.mark.parametrize("name", [name for name in NAMES if name.split(".")[0] in MESSAGES])
def test_the_same_message_still_makes_the_same_bytes(name: str) -> None:
    reader = MESSAGES[name.split(".")[0]]
    payload = (FOLDER / f"{name}.bin").read_bytes()
    again = encode(reader.read(payload))
    assert reader.read(again) == reader.read(payload)
    said = without_later_fields(json.loads(again), json.loads(payload))
    assert json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() == payload


def without_later_fields(found: Any, wanted: Any) -> Any:
    """What was said then: fields that came later, at their defaults, are no change of meaning."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {name: without_later_fields(value, wanted[name]) for name, value in found.items() if name in wanted}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [without_later_fields(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


def test_uncompressed_forms_still_make_the_same_bytes() -> None:
    for name in ("weights.two", "topics.all", "release-map.two"):
        assert payloads()[name] == (FOLDER / f"{name}.bin").read_bytes()


def test_every_kind_has_a_golden_file_and_every_file_its_description() -> None:
    assert {name.split(".")[0] for name in NAMES} == set(DESCRIBE)
    assert set(NAMES) >= set(payloads())
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)


def test_a_golden_file_is_never_overwritten(tmp_path: Path) -> None:
    first = make(tmp_path)
    (tmp_path / f"{first[0]}.bin").write_bytes(b"released")
    assert make(tmp_path) == []
    assert (tmp_path / f"{first[0]}.bin").read_bytes() == b"released"
    (tmp_path / f"{first[1]}.json").unlink()
    with pytest.raises(FileExistsError):
        make(tmp_path)
