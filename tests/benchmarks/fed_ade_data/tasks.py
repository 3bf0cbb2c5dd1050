"""Data, net and shifts of each task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle, load_bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle
from server_bridge.bundles.gradients.batch_statistics import Statistics
from tests.benchmarks.cohorts_data.digits import read_digits
from tests.benchmarks.cohorts_data.gas import read_batch
from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.fed_ade_data.corruptions import CORRUPTIONS
from tests.benchmarks.fed_ade_data.nets import SOURCE, dense_net, small_cnn

Kind = Literal["label", "covariate"]
Turned = Callable[[NDArray[np.int64], float, int, np.random.Generator], Samples]
"""Classes wanted, how far the stream has moved, the client, and chance to samples of those classes."""
GAS_TARGETS = (2, 3, 6)
SPARSE = 0.1  # of the Dirichlet that a client's shares of the classes are drawn from, as in Fed-ADE


@dataclass(frozen=True)
class Task:
    """One data set under one kind of shift.

    Args:
        bundle: of the net, trained where nothing has shifted.
        personal: the tensors that stay with each client; the others are averaged.
        clients: how many take part.
        steps: of time.
        classes: how many.
        draw: samples of given classes.
        maximum: of the learning rate; the minimum is a hundredth. Chosen on development seeds: the largest of the
            half-decade grid at which adapting is on average no worse than not adapting.
    """

    name: str
    kind: Kind
    bundle: Bundle
    personal: frozenset[str]
    clients: int
    steps: int
    classes: int
    draw: Turned
    maximum: float


def label_pool(samples: Samples) -> Turned:
    """Samples as they are, whatever the client and the time."""
    rows = [np.flatnonzero(samples.labels == label) for label in range(int(samples.labels.max()) + 1)]

    def draw(labels: NDArray[np.int64], moved: float, client: int, rng: np.random.Generator) -> Samples:
        return samples.take(np.array([rng.choice(rows[label]) for label in labels], np.intp))

    return draw


def image_pool(samples: Samples, shape: tuple[int, ...]) -> Turned:
    """Images that the client's corruption has changed."""
    plain, ways = label_pool(samples), list(CORRUPTIONS.values())

    def draw(labels: NDArray[np.int64], moved: float, client: int, rng: np.random.Generator) -> Samples:
        drawn = plain(labels, moved, client, rng)
        changed = ways[client % len(ways)](drawn.features.reshape(-1, *shape), moved, rng)
        return Samples(changed.reshape(drawn.features.shape), drawn.labels)

    return draw


def ageing_pool(new: Samples, aged: Sequence[Samples]) -> Turned:
    """Samples of the new sensors, moved towards the client's aged ones as the means of the classes have on average."""
    plain, before = label_pool(new), _class_means(new)
    drifts = [np.nanmean(_class_means(samples) - before, axis=0).astype(np.float32) for samples in aged]

    def draw(labels: NDArray[np.int64], moved: float, client: int, rng: np.random.Generator) -> Samples:
        drawn = plain(labels, moved, client, rng)
        return Samples(drawn.features + np.float32(moved) * drifts[client], drawn.labels)

    return draw


def make_bundle(
    net: onnx.ModelProto,
    fit: Samples,
    held: Samples,
    epochs: int,
    folder: Path,
    statistics: Statistics = "frozen",
) -> Bundle:
    """The net trained on ``fit`` and calibrated on ``held``, with a graph that needs no labels; made once a folder."""
    if (folder / "bundle").exists():
        return load_bundle(folder / "bundle")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("fit", fit), ("held", held)):
        arrays = {SOURCE: part.features, "label": part.labels}
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    build = BuildSettings(
        trainable=("*.weight", "*.bias"),
        loss="cross-entropy",
        optimisers=("sgd", "adam"),
        label_free=("entropy",),
        head=True,
        monitor_batch=16,
        statistics=statistics,
    )
    build_bundle(net, folder / "held.npz", build, folder / "untrained")
    settings = FitSettings(epochs, learning_rate=0.002, monitor_batch=16)
    return fit_bundle(folder / "untrained", folder / "fit.npz", folder / "held.npz", settings, folder / "bundle")


def digits(data: Path, work: Path, kind: Kind) -> Task:
    """14 x 14 digits, an MLP of 32 fitted on 1,000 of them: 90 % right."""
    samples = read_digits(data)
    fit, held, rest = np.split(np.random.default_rng(0).permutation(len(samples.labels)), [1000, 2000])
    net = dense_net((196, 32, 10), SOURCE, seed=0)
    bundle = make_bundle(net, samples.take(fit), samples.take(held), 30, work / "digits")
    pool = samples.take(rest)
    draw = label_pool(pool) if kind == "label" else image_pool(pool, (1, 14, 14))
    return Task(
        "digits", kind, bundle, frozenset({"dense2.weight", "dense2.bias"}), 5, 100, 10, draw, MAXIMA["digits", kind]
    )


def cifar(data: Path, work: Path, kind: Kind) -> Task:
    """16 x 16 colour images, a small CNN with batch normalisation fitted on 16,000 of them; its statistics stay."""
    samples = _cifar_images(data, work, 22_000)
    fit, held, rest = np.split(np.random.default_rng(0).permutation(len(samples.labels)), [16_000, 17_000])
    bundle = make_bundle(small_cnn(seed=0), samples.take(fit), samples.take(held), 10, work / "cifar", "batch")
    pool = samples.take(rest)
    draw = label_pool(pool) if kind == "label" else image_pool(pool, (3, 16, 16))
    statistics = {spec.name for spec in bundle.manifest.trainable if spec.statistic}
    personal = frozenset({"dense2.weight", "dense2.bias", *statistics})
    return Task("CIFAR-10", kind, bundle, personal, 3, 36, 10, draw, MAXIMA["CIFAR-10", kind])


def gas(data: Path, work: Path, kind: Kind) -> Task:
    """Gas sensors, an MLP of 32: shares of batch 3's gases; or batch 1, moved as the means of 2, 3 and 6 have."""
    batches = {number: read_batch(data, number) for number in (1, *GAS_TARGETS)}
    mean, deviation = batches[1].features.mean(0), batches[1].features.std(0)
    batches = {k: _below(Samples((b.features - mean) / deviation, b.labels), 5) for k, b in batches.items()}
    start, size = (batches[3], 40) if kind == "label" else (batches[1], 160)
    fit, held, rest = np.split(np.random.default_rng(0).permutation(len(start.labels)), [size, size + 100])
    net = dense_net((128, 32, 5), SOURCE, seed=0)
    bundle = make_bundle(net, start.take(fit), start.take(held), 40, work / f"gas-{kind}")
    pool = start.take(rest)
    draw = label_pool(pool) if kind == "label" else ageing_pool(pool, [batches[number] for number in GAS_TARGETS])
    return Task("gas", kind, bundle, frozenset({"dense2.weight", "dense2.bias"}), 3, 100, 5, draw, MAXIMA["gas", kind])


MAXIMA: Mapping[tuple[str, Kind], float] = MappingProxyType(
    {
        ("digits", "label"): 0.1,
        ("digits", "covariate"): 1.0,
        ("CIFAR-10", "label"): 0.03,
        ("CIFAR-10", "covariate"): 0.03,
        ("gas", "label"): 0.03,
        ("gas", "covariate"): 0.003,
    }
)
"""See `Task`; from seeds 1000 and 1001."""
TASKS: Mapping[str, Callable[[Path, Path, Kind], Task]] = MappingProxyType(
    {"digits": digits, "CIFAR-10": cifar, "gas": gas}
)


def _class_means(samples: Samples) -> NDArray[np.float64]:
    """(classes, d); NaN for a class that there is none of."""
    counts = np.bincount(samples.labels, minlength=5)
    sums = np.zeros((len(counts), samples.features.shape[1]))
    np.add.at(sums, samples.labels, samples.features)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], np.nan)


def _below(samples: Samples, classes: int) -> Samples:
    return samples.take(np.flatnonzero(samples.labels < classes))


def _cifar_images(data: Path, work: Path, count: int) -> Samples:
    """Some images, (n, 3, 16, 16) in [0, 1]: means of two by two pixels; decoded once a folder."""
    file = work / f"cifar-{count}.npz"
    if not file.exists():
        from PIL import Image  # a development dependency, needed once

        with np.load(data / "cifar10_train_jpeg.npz") as stored:
            joined, offsets, labels = stored["jpeg"].tobytes(), stored["offsets"], stored["labels"]
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]  # they are stored class by class
        pixels = np.empty((count, 3, 16, 16), np.float32)
        for number, row in enumerate(chosen):
            with Image.open(BytesIO(joined[offsets[row] : offsets[row + 1]])) as image:
                whole = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1) / 255
            pixels[number] = whole.reshape(3, 16, 2, 16, 2).mean((2, 4))
        work.mkdir(parents=True, exist_ok=True)
        np.savez(file, pixels=pixels, labels=labels[chosen].astype(np.int64))
    with np.load(file) as kept:
        return Samples(kept["pixels"], kept["labels"])
