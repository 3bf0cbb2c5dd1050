"""``python -m tests.docs_build [--check]``: write the generated documents, or fail where they are stale."""

import sys
from pathlib import Path

from edge_agent.wire.document import documents as wire_documents
from tests.settings_document import settings_document

DOCS = Path(__file__).resolve().parent.parent / "docs"
GENERATED_FOLDERS = ("schemas",)


def documents() -> dict[str, str]:
    """Every generated document by its name under ``docs``."""
    return {**wire_documents(), "settings.md": settings_document()}


def stale(folder: Path = DOCS) -> list[str]:
    """Documents that are absent, differ, or are no longer generated."""
    wanted = documents()
    differing = [name for name, text in wanted.items() if _read(folder / name) != text]
    present = [f"{part}/{path.name}" for part in GENERATED_FOLDERS for path in (folder / part).glob("*")]
    return sorted([*differing, *(name for name in present if name not in wanted)])


def build(folder: Path = DOCS) -> list[str]:
    """Bring the documents up to date; returns those that changed."""
    changed = stale(folder)
    wanted = documents()
    for name in changed:
        path = folder / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def main(arguments: list[str]) -> int:
    """Exit status 1 when ``--check`` finds a stale document."""
    if arguments == ["--check"]:
        names = stale()
        for name in names:
            print(f"docs/{name} is stale: run python -m tests.docs_build")
        return 1 if names else 0
    for name in build():
        print(f"docs/{name} written")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
