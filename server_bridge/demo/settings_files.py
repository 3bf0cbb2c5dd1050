"""Settings files of the demo's bridge and gateways: what provisioning wrote, with the demo's own values."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from edge_agent.link.durable import write_file

Value = str | int | float | bool
Sections = Mapping[str, Mapping[str, Value]]


def amend(path: Path, sections: Sections) -> None:
    """Set keys of a TOML settings file; the other keys stay, comments do not.

    Raises:
        StorageError: it cannot be written.
    """
    tables: dict[str, dict[str, Value]] = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, values in sections.items():
        tables[name] = {**tables.get(name, {}), **values}
    write_file(path, to_toml(tables).encode())


def to_toml(sections: Sections) -> str:
    """Tables of plain values as TOML."""
    blocks = []
    for name, values in sections.items():
        lines = [f"{key} = {_literal(value)}" for key, value in values.items()]
        blocks.append("\n".join([f"[{name}]", *lines]) + "\n")
    return "\n".join(blocks)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    if any(ord(character) < 0x20 for character in escaped):
        raise ValueError(f"{value!r} has a control character")
    return f'"{escaped}"'
