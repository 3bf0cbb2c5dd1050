"""Runs the fuzzing process, and notices when it dies."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

PATIENCE_S = 120.0


def outcome_of(
    child: Callable[..., None], *, seconds: float, seed: int, only: str, keep: Path
) -> dict[str, object] | str:
    """What the child found; a text of where it died if it did, by a signal too."""
    context = multiprocessing.get_context("spawn")
    progress = context.Array("q", 2)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(writer, progress, seconds, seed, only, keep), daemon=True)
    process.start()
    writer.close()
    names = _received(reader, PATIENCE_S)
    result = _received(reader, seconds + PATIENCE_S) if names is not None else None
    process.join(10.0)
    if process.is_alive():
        process.kill()
    if isinstance(result, dict):
        return result
    place = f"{names[progress[0]]}, input {progress[1]}" if isinstance(names, list) else "the making of the targets"
    return f"the process ended with {process.exitcode} at {place} of seed {seed}"


def _received(reader: Connection, timeout_s: float) -> object:
    try:
        return reader.recv() if reader.poll(timeout_s) else None
    except EOFError:
        return None
