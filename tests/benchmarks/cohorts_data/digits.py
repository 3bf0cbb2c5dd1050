"""Drifted digits: MNIST's test images, a small MLP, clients whose labels are swapped or whose camera is turned."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from server_bridge.bundles.fit import FitSettings
from tests.benchmarks.cohorts_data.drifted import Drifted
from tests.benchmarks.cohorts_data.real import Samples, Training, dense_net, fit_base, layers_of, split_half, update

SIDE, HIDDEN, CLASSES = 14, 32, 10
FIT, HELD = 4_000, 1_000
TRAINING = Training(epochs=3, learning_rate=0.001, batch_size=16)
SOURCE = "pixels"
# Each a pair of labels that are exchanged twice, or quarter turns of the image.
SWAPS: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        "swap 12 34": (0, 2, 1, 4, 3, 5, 6, 7, 8, 9),
        "swap 56 78": (0, 1, 2, 3, 4, 6, 5, 8, 7, 9),
        "swap 12 56": (0, 2, 1, 3, 4, 6, 5, 7, 8, 9),
    }
)
TURNS: Mapping[str, int] = MappingProxyType({"turn 90": 1, "turn 180": 2, "turn 270": 3})


class DigitsFleet:
    """Clients on drifted digits."""

    def __init__(self, data: Path, work: Path, training: Training = TRAINING) -> None:
        self.training = training
        samples = read_digits(data)
        order = np.random.default_rng(0).permutation(len(samples.labels))
        fit, held, self.rest = np.split(order, [FIT, FIT + HELD])
        self.samples = samples
        net = dense_net((SIDE * SIDE, HIDDEN, CLASSES), SOURCE, seed=0)
        settings = FitSettings(20, learning_rate=0.001)
        self.bundle = fit_base(net, SOURCE, samples.take(fit), samples.take(held), settings, work / "digits")
        self.base = self.bundle.initial_weights()

    def draw(self, families: Sequence[tuple[str, int]], seed: int) -> Drifted:
        """Clients of the given (drift, members), 60-150 disjoint images each."""
        rng = np.random.default_rng([seed, *(members for _, members in families)])
        spare = rng.permutation(self.rest)
        changes, truth, known, examples = [], [], [], []
        for number, (drift, members) in enumerate(families):
            for size in rng.integers(60, 151, members):
                mine, spare = drifted(self.samples.take(spare[:size]), drift), spare[size:]
                seed_of_client = int(rng.integers(2**31))
                changes.append(update(self.bundle, self.base, mine, self.training, seed_of_client))
                known.append(split_half(self.bundle, self.base, mine, self.training, seed_of_client))
                truth.append(number)
                examples.append(float(size))
        parts = np.stack(changes), np.array(truth, np.intp), np.array(known), None, np.array(examples)
        return Drifted(*parts, layers_of(self.base))


def read_digits(data: Path) -> Samples:
    """The 10,000 test images, (n, 196) in [0, 1]: means of two by two pixels."""
    images, labels = (
        gzip.decompress((data / f"t10k-{name}-ubyte.gz").read_bytes()) for name in ("images-idx3", "labels-idx1")
    )
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, SIDE, 2, SIDE, 2).mean((2, 4)) / 255.0
    numbers = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    return Samples(pixels.reshape(len(numbers), -1).astype(np.float32), numbers)


def drifted(samples: Samples, drift: str) -> Samples:
    """What a drift makes of them."""
    if drift in SWAPS:
        return Samples(samples.features, np.array(SWAPS[drift], np.int64)[samples.labels])
    images = np.rot90(samples.features.reshape(-1, SIDE, SIDE), TURNS[drift], axes=(1, 2))
    return Samples(np.ascontiguousarray(images.reshape(len(images), -1)), samples.labels)
