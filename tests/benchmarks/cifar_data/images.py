"""CIFAR-10's training images, decoded once and kept outside the repository."""

import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.durable import make_directory

FILE = "cifar10_train_jpeg.npz"
SIDE, CLASSES = 32, 10


@dataclass(frozen=True, slots=True)
class Images:
    """(n, 3, 32, 32) uint8 pixels, channels first, and (n,) int64 classes."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_images(data: Path, cache: Path) -> Images:
    """All 50,000, from the cache if they were decoded before; pixels are mapped, not read."""
    pixels, labels = cache / "pixels.npy", cache / "labels.npy"
    if not (pixels.exists() and labels.exists()):
        make_directory(cache)
        decoded = _decode(data / FILE)
        for path, array in ((labels, decoded.labels), (pixels, decoded.pixels)):
            partial = path.with_suffix(f".{os.getpid()}.npy")
            np.save(partial, array)
            partial.replace(path)
    return Images(np.load(pixels, mmap_mode="r"), np.load(labels))


def _decode(path: Path) -> Images:
    from PIL import Image  # a development dependency, needed once

    with np.load(path) as stored:
        joined, offsets, labels = stored["jpeg"].tobytes(), stored["offsets"], stored["labels"]
    pixels = np.empty((len(labels), 3, SIDE, SIDE), np.uint8)
    for row in range(len(labels)):
        with Image.open(BytesIO(joined[offsets[row] : offsets[row + 1]])) as image:
            pixels[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return Images(pixels, labels.astype(np.int64))
