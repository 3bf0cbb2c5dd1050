"""The motion-sensor recordings that ship inside the ``seglearn`` wheel."""

import hashlib
import importlib.metadata
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError, DataError

DISTRIBUTION = "seglearn"
FILE_NAME = "watch_dataset.npy"
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
AXES = (("ax", "g"), ("ay", "g"), ("az", "g"), ("wx", "rad/s"), ("wy", "rad/s"), ("wz", "rad/s"))


@dataclass(frozen=True, slots=True)
class Recording:
    """One person doing one motion.

    Attributes:
        name: stable, unique.
        subject: 1-10.
        motion: class number, 0-6.
        signal: (n, 6) float32 at 50 Hz, as the sensor gave it (:data:`AXES`).
    """

    name: str
    subject: int
    motion: int
    signal: NDArray[np.float32]


def find_file() -> Path:
    """The recordings' file among the installed files; ``seglearn`` itself is never imported.

    Raises:
        ConfigError: the distribution or its file is missing.
    """
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == FILE_NAME:
            return Path(str(file.locate()))
    raise ConfigError(
        f"the demo's data ({FILE_NAME} of the package {DISTRIBUTION}) are not installed",
        "install the extra: pip install 'clma-edge[bridge,demo]'",
    )


def load_recordings(path: Path | None = None) -> tuple[list[Recording], list[str]]:
    """Every recording, and the motions' names by class number.

    The file is a pickled object array: it is unpickled only if its SHA-256 is the known one.

    Raises:
        ConfigError: the file is missing.
        DataError: its content is another than the one this demo was written for.
    """
    place = path or find_file()
    try:
        content = place.read_bytes()
    except OSError as error:
        raise ConfigError(f"the demo's data cannot be read: {error}", f"reinstall {DISTRIBUTION}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise DataError(f"{place.name} has SHA-256 {digest}, expected {SHA256}", f"reinstall {DISTRIBUTION}")
    table: dict[str, Any] = np.load(io.BytesIO(content), allow_pickle=True).item()
    rows = zip(table["X"], table["y"], table["subject"], strict=True)
    recordings = [
        Recording(f"r{number:03d}", int(subject), int(motion), np.asarray(signal, np.float32))
        for number, (signal, motion, subject) in enumerate(rows)
    ]
    return recordings, [str(name) for name in table["y_labels"]]
