"""What ``cohorting`` has measured: kept case by case, so that what was stopped goes on where it was."""

import json
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.report import machine

Size = tuple[int, int]


class Results:
    """Results as JSON files of a folder; cases that are not run again stay as they were.

    Args:
        folder: where ``cohorting.json`` and ``cohorting_peer.json`` lie.
        saved: whether anything is written.
    """

    def __init__(self, folder: Path, *, saved: bool) -> None:
        self._folder = folder
        self._saved = saved

    def keep(self, part: str, case: str, value: object) -> None:
        """A case of a part, with when and on what it was measured."""
        about = {"date": today(), "machine": machine(), "threads": 1}
        self._merge("cohorting.json", about | {part: {case: value}})

    def keep_peer(self, case: str, value: dict[str, Any]) -> None:
        """The peer's time of a case."""
        self._merge("cohorting_peer.json", {case: value})

    def peer(self, case: str) -> dict[str, Any] | None:
        """The peer's time of a case, if it was saved."""
        return self._read("cohorting_peer.json").get(case)

    def picture(self, name: str, svg: str) -> None:
        """An SVG file beside the results."""
        if self._saved:
            (self._folder / name).write_text(svg, encoding="utf-8")

    def _merge(self, name: str, found: dict[str, Any]) -> None:
        if not self._saved:
            return
        kept = self._read(name)
        for part, value in found.items():
            kept[part] = {**kept.get(part, {}), **value} if isinstance(value, dict) else value
        (self._folder / name).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")

    def _read(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found


def case_name(form: str, size: Size) -> str:
    """A case as it is named in the files."""
    return f"{size[0]}x{size[1]} {form}"


def today() -> str:
    """The date, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())
