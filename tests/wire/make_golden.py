"""``python -m tests.wire.make_golden``: write golden files that are not there yet.

A file that is there is never written again: what was released must be readable for ever.
"""

import json
from pathlib import Path

from tests.wire.golden_values import payloads
from tests.wire.golden_vectors import DESCRIBE, FOLDER


def make(folder: Path = FOLDER) -> list[str]:
    """Write what is missing; returns the names of what was written.

    Raises:
        FileExistsError: one of a pair is there and the other is not.
    """
    written = []
    for name, payload in payloads().items():
        binary, text = folder / f"{name}.bin", folder / f"{name}.json"
        if binary.exists() and text.exists():
            continue
        described = json.dumps(DESCRIBE[name.split(".")[0]](payload), indent=1, ensure_ascii=False) + "\n"
        with binary.open("xb") as file:
            file.write(payload)
        with text.open("x", encoding="utf-8") as file:
            file.write(described)
        written.append(name)
    return written


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for made in make():
        print(made)
