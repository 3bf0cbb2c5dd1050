"""NPZ files, without unpickling."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.model.npz_damage import DAMAGE

_ZIP_MAGIC = b"PK"
_AGAIN = "write it again with numpy.savez, without objects"
COLUMN_KEYS = ("label", "group", "holdout", "delay", "time", "id", "task")


def read_npz(path: Path, input_names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The known arrays of an NPZ file; others are not even read.

    Raises:
        ConfigError: absent, no NPZ file, damaged, or an array of Python objects (named).
    """
    key = "the file"
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:  # numpy would advise to unpickle it
                raise ConfigError(f"recording {path} is not an NPZ file", _AGAIN)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {}
                for key in (*input_names, *COLUMN_KEYS):
                    if key in archive.files:
                        arrays[key] = archive[key]
                return arrays
    except FileNotFoundError:
        raise ConfigError(f"recording {path} does not exist", "correct [source] path") from None
    except DAMAGE as error:
        raise ConfigError(f"recording {path}: {key} cannot be read ({error})", _AGAIN) from None
