"""NPZ files, without unpickling."""

import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError

# What numpy and zipfile raise on files that are damaged or no archive at all.
_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

COLUMN_KEYS = ("label", "group", "holdout", "delay", "time", "id")


def read_npz(path: Path, input_names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The known arrays of an NPZ file; others are not even read.

    Raises:
        ConfigError: absent, no NPZ file, damaged, or an array of Python objects (named).
    """
    key = "the file"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {}
            for key in (*input_names, *COLUMN_KEYS):
                if key in archive.files:
                    arrays[key] = archive[key]
            return arrays
    except FileNotFoundError:
        raise ConfigError(f"recording {path} does not exist", "correct [source] path") from None
    except _DAMAGE as error:
        raise ConfigError(
            f"recording {path}: {key} cannot be read ({error})", "write it again with numpy.savez, without objects"
        ) from None
