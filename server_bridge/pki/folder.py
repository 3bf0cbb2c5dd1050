"""Credentials in the folders of those who use them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.link.durable import make_directory, read_file, write_directory, write_file
from server_bridge.pki.authority import TLS_FOLDER, is_private

SETTINGS_CAP_BYTES = 1024 * 1024


def write_credentials(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a credentials folder, its keys for the owner only; nothing is overwritten.

    Raises:
        StorageError: the disk refused.
    """
    make_directory(folder.parent)
    write_directory(folder, files, private=[name for name in files if is_private(name)])


def check_absent(folder: Path) -> None:
    """Before anything is issued for it.

    Raises:
        ConfigError: the folder is there.
    """
    if folder.exists():
        raise ConfigError(
            f"{folder} exists already", "keys are never overwritten: to renew them, move the folder away first"
        )


def name_credentials(settings_file: Path) -> bool:
    """Add ``credentials`` to ``[broker]`` of a settings file; returns whether it was added.

    The operator's comments stay. A file that names credentials or a ``ca`` is left as it is.

    Raises:
        ConfigError: it is no TOML.
    """
    text = read_file(settings_file, cap_bytes=SETTINGS_CAP_BYTES).decode(errors="replace")
    broker = _broker(settings_file, text)
    if "credentials" in broker or "ca" in broker:
        return False
    lines = text.splitlines()
    line = f'credentials = "{TLS_FOLDER}"'
    titles = [number for number, title in enumerate(lines) if title.split("#")[0].strip() == "[broker]"]
    if titles:
        lines.insert(titles[0] + 1, line)
    else:
        lines += ["", "[broker]", line]
    text = "\n".join(lines) + "\n"
    if _broker(settings_file, text).get("credentials") != TLS_FOLDER:
        raise ConfigError(f"{settings_file} has [broker] in another form", f"add {line} to it by hand")
    write_file(settings_file, text.encode())
    return True


def _broker(path: Path, text: str) -> Mapping[str, object]:
    try:
        broker = tomllib.loads(text).get("broker", {})
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    return broker if isinstance(broker, dict) else {}
