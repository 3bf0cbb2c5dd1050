"""A line a run while a long benchmark goes on, so that one that was ended can go on where it was."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def read_lines(path: Path, made_of: Callable[..., T]) -> list[T]:
    """The runs in a file; a last line that was cut off is taken away.

    Args:
        path: may be absent.
        made_of: a run from the fields of a line.
    """
    if not path.exists():
        return []
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    return [made_of(**json.loads(line)) for line in whole.splitlines()]


def add_lines(path: Path, runs: "Sequence[DataclassInstance]") -> None:
    """Some runs more, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(asdict(run)) + "\n" for run in runs))


def tables(head: Mapping[str, Any], lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """JSON of a head and named tables, a line a row, so that a change of one row is one line in a comparison."""
    parts = [json.dumps(dict(head))[:-1]]
    for name, rows in lists.items():
        inside = ",\n".join("  " + json.dumps(row) for row in rows)
        parts.append(f" {json.dumps(name)}: [\n{inside}\n ]")
    return ",\n".join(parts) + "}\n"
