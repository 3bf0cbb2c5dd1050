"""What clients have trained, on disk by the digest of all that it depends on: arms share what they have in common."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.wire.tensors import Weights

Arrays = dict[str, NDArray[Any]]
# Strategies round an average differently: the same average, up to 1e-7 of its length.
SAME = 1e-6


def digest_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of named arrays, whatever their order."""
    whole = sha256()
    for name in sorted(arrays):
        whole.update(name.encode())
        whole.update(np.ascontiguousarray(arrays[name]).tobytes())
    return whole.hexdigest()


@dataclass
class TrainingCache:
    """A folder of arrays by key; ``computed`` and ``found`` count what was asked for."""

    folder: Path
    computed: int = 0
    found: int = 0

    def get(self, compute: Callable[[], Arrays], **depends_on: str | int | float) -> Arrays:
        """The arrays that ``compute`` gives, from disk if they were computed before."""
        key = sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
        path = self.folder / key[:2] / f"{key}.npz"
        if path.exists():
            self.found += 1
            with np.load(path) as stored:
                return {name: stored[name] for name in stored.files}
        self.computed += 1
        arrays = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, **arrays)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
        partial.replace(path)
        return arrays

    def known(self, weights: Weights, place: str) -> Weights:
        """The weights first seen at ``place`` that differ from these by rounding alone; else these, remembered.

        Training is chaotic: a last bit moves accuracies by a point. So arms that average the same
        replies go on from the same weights.
        """
        folder = self.folder / "known" / sha256(place.encode()).hexdigest()
        own = folder / f"{digest_of(weights)}.npz"
        for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns):
            if path == own:
                return weights
            with np.load(path) as stored:
                other = {name: stored[name] for name in stored.files}
            if _distance(weights, other) < SAME:
                return other
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(own, **weights)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
        return weights


def _distance(left: Weights, right: Weights) -> float:
    """Relative to the length of ``right``."""
    apart = sum(float(np.square(left[name] - right[name], dtype=np.float64).sum()) for name in right)
    return float(np.sqrt(apart / sum(float(np.square(right[name], dtype=np.float64).sum()) for name in right)))
