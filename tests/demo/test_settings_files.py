import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_bridge.demo.settings_files import Value, amend, to_toml

NAMES = st.from_regex(r"[a-z_]{1,10}", fullmatch=True)
TEXT = st.text(st.characters(min_codepoint=0x20, exclude_characters="\x7f", exclude_categories=["Cs"]))
VALUES = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), TEXT)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_what_is_written_reads_back(sections: dict[str, dict[str, Value]]) -> None:
    assert tomllib.loads(to_toml(sections)) == sections


def test_a_control_character_is_refused() -> None:
    with pytest.raises(ValueError, match="control character"):
        to_toml({"a": {"b": "x\ny"}})


def test_amending_keeps_the_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('# provisioned\n[gateway]\nid = "gw-01"\n[broker]\nport = 1883\nkeepalive_s = 30\n')
    amend(path, {"broker": {"port": 4711}, "source": {"kind": "replay"}})
    assert tomllib.loads(path.read_text()) == {
        "gateway": {"id": "gw-01"},
        "broker": {"port": 4711, "keepalive_s": 30},
        "source": {"kind": "replay"},
    }
