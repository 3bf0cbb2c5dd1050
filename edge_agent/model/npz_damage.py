"""How damage in an NPZ file shows."""

import struct
import zipfile
import zlib

DAMAGE = (
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
"""What numpy and zipfile raise on files that are damaged or no archive at all."""
