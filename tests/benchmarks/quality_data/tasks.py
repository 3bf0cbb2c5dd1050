"""Three drifts: gas sensors that aged, motion sensors that were remounted, images whose labels moved on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from server_bridge.demo.plan import Family, GatewayPlan
from server_bridge.demo.timing import LEARNING_RATE
from tests.benchmarks.cifar_data.images import CLASSES, load_images
from tests.benchmarks.cifar_data.net import build
from tests.benchmarks.cohorts_data.gas import TRAINING
from tests.benchmarks.gas_fleet import DRIFT_ROUND, GasGateways
from tests.benchmarks.motion_fleet import MotionFleet
from tests.benchmarks.quality_data.twin import Task, tuned_here
from tests.shared_data import DATA

AGED_GATEWAY = 3  # on batch 3, which leaves the most samples to test on
GAS_EPOCHS, MOTION_EPOCHS = 20, 5
WEARERS = 10  # a later seed has an earlier one's wearer, and a net of its own
TRAINED, HELD, BASE_EPOCHS, EPOCHS, RATE = 2_000, 2_000, 4, 3, 0.01
PIXEL_MEAN, PIXEL_DEVIATION = 0.47, 0.25


def gas(work: Path, seed: int) -> Task:
    """40 samples of batch 3, months after the batch 1 that the net was fitted on."""
    fleet = GasGateways(DATA, work, seed)
    own = fleet.of(AGED_GATEWAY, DRIFT_ROUND)
    return Task(
        fleet.bundle,
        fleet.bundle.initial_weights(),
        own.train.features.astype(np.float32),
        own.train.labels,
        own.test.features.astype(np.float32),
        own.test.labels,
        optimiser="adam",
        learning_rate=TRAINING.learning_rate,
        epochs=GAS_EPOCHS,
        seed=seed,
    )


def motion(work: Path, seed: int) -> Task:
    """The windows of one wearer after the sensor was remounted."""
    plan = GatewayPlan("gw-1", Family.PERMUTED, 1 + seed % WEARERS)
    fleet = MotionFleet(work / f"motion-{seed}", [plan], seed)
    client = fleet.clients["gw-1"]
    return Task(
        fleet.bundle,
        fleet.bundle.initial_weights(),
        client.train.signal,
        client.train.label,
        client.held.signal,
        client.held.label,
        optimiser="adam",
        learning_rate=LEARNING_RATE,
        epochs=MOTION_EPOCHS,
        seed=seed,
    )


def cifar(work: Path, seed: int) -> Task:
    """Images whose labels turn by one class, as in the published experiment, after a net has learnt the old ones."""
    images = load_images(DATA, work / "images")
    rows = np.random.default_rng([seed, 0xC1F0]).permutation(len(images.labels))[: TRAINED + HELD]
    pixels = (images.pixels[np.sort(rows)].astype(np.float32) / np.float32(255) - PIXEL_MEAN) / PIXEL_DEVIATION
    labels = images.labels[np.sort(rows)]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    train, held = shuffled[:TRAINED], shuffled[TRAINED:]
    bundle = build(work / f"cifar-{seed}", pixels[train[:500]], labels[train[:500]], seed, "frozen")
    before = Task(
        bundle,
        bundle.initial_weights(),
        pixels[train],
        labels[train],
        pixels[held],
        labels[held],
        optimiser="momentum",
        learning_rate=RATE,
        epochs=BASE_EPOCHS,
        seed=seed,
    )
    turned = (labels + 1) % CLASSES
    weights = tuned_here(before)
    return replace(
        before, weights=weights, labels=turned[train], test_labels=turned[held], epochs=EPOCHS, seed=seed + 1000
    )


TASKS: Mapping[str, Callable[[Path, int], Task]] = MappingProxyType({"gas": gas, "motion": motion, "cifar": cifar})
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "gas": "gas sensors, batch 3 after batch 1",
        "motion": "motion sensor, remounted",
        "cifar": "CIFAR-10, labels turned by one",
    }
)
