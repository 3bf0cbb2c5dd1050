"""Handwritten digits: those that the backbone learns, and those of each task; no image is in two sets."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 28
KNOWN = 5
"""The backbone's classes: digits 0 to 4, upright."""
BACKBONE_ROWS, TRAIN_ROWS, TEST_ROWS = 2000, 600, 1200

Images = NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """Images (n, 1, 28, 28) in [0, 1] and their classes from 0."""

    images: Images
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What a task's gateways see.

    Args:
        digits: that occur, in the order of the classes.
        turn: what happens to an image.
    """

    digits: tuple[int, ...]
    turn: Callable[[Images], Images]


def _upright(images: Images) -> Images:
    return images


def _rotated(images: Images) -> Images:
    return np.ascontiguousarray(np.rot90(images, axes=(2, 3)))


def _inverted(images: Images) -> Images:
    return 1 - images


TASKS: Mapping[str, Task] = {
    "digits 5-9": Task((5, 6, 7, 8, 9), _upright),
    "0-4, turned 90 degrees": Task((0, 1, 2, 3, 4), _rotated),
    "0-9, inverted": Task(tuple(range(10)), _inverted),
}


def splits(data: Path, seed: int) -> tuple[Split, dict[str, tuple[Split, Split]]]:
    """The backbone's images, and for each task those to train and to test on."""
    images, digits = _read(data)
    order = np.random.default_rng([seed, 1]).permutation(len(digits))
    backbone = _take(images, digits, order, Task(tuple(range(KNOWN)), _upright), BACKBONE_ROWS)
    rest = np.setdiff1d(order, backbone[1], assume_unique=True)
    rest = rest[np.random.default_rng([seed, 2]).permutation(len(rest))]
    tasks = {}
    for name, task in TASKS.items():
        train, used = _take(images, digits, rest, task, TRAIN_ROWS)
        test, _ = _take(images, digits, rest[~np.isin(rest, used)], task, TEST_ROWS)
        tasks[name] = (train, test)
    return backbone[0], tasks


def _take(
    images: Images, digits: NDArray[Any], order: NDArray[np.int64], task: Task, count: int
) -> tuple[Split, NDArray[np.int64]]:
    rows = order[np.isin(digits[order], task.digits)][:count]
    labels = np.searchsorted(task.digits, digits[rows])
    return Split(task.turn(images[rows]), labels.astype(np.int64)), rows


def _read(data: Path) -> tuple[Images, NDArray[Any]]:
    pixels = np.frombuffer(gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    return (pixels.reshape(-1, 1, SIDE, SIDE) / np.float32(255)).astype(np.float32), labels
