"""A tiny bundle with calibrated monitors, and streams that its gateway serves."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from edge_agent.config import MonitorSection
from edge_agent.drift import arrivals, unlabelled
from edge_agent.drift.arrays import encode_drift_arrays
from edge_agent.drift.loss_rise import MONITOR_NAME as LOSS_RISE
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.drift.sequential.calibration import calibrate_loss_level
from edge_agent.model.bundle import Bundle, file_digests, load_bundle, write_bundle
from edge_agent.runtime.watch_rules import WatchRules, watch_rules
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import Served
from edge_agent.wire.manifest import FeatureSpec, MonitorSpec
from tests.runtime.bench import RULE
from tests.training.tiny_bundle import CLASSES, FEATURES, tiny_weights

ROWS, SIZE, RATE = 4200, 16, 2e-3
NAMES = ("inlet", "outlet", "flow", "load")
OWN = "e" * 64


def drawn(count: int, seed: int, *, moved: float = 0.0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features and logits; ``moved``: how far the first feature has gone from where it was."""
    x = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)
    x[:, 0] += moved
    return x, (3 * x @ tiny_weights()["w"]).astype(np.float32)


def labels_of(outputs: NDArray[np.float32], seed: int) -> NDArray[np.int64]:
    """Drawn as the model says, so that it is right about its certainty."""
    powers = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    borders = (powers / powers.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return np.asarray((np.random.default_rng(seed).random((len(outputs), 1)) > borders[:, :-1]).sum(axis=1))


@cache
def _calibrated() -> tuple[dict[str, MonitorSpec], bytes]:
    x, outputs = drawn(ROWS, 0)
    labels = labels_of(outputs, 10_000)
    losses = sample_losses("cross-entropy", outputs, labels)
    seen = Observed([f"r{k}" for k in range(ROWS)], np.arange(ROWS, dtype=np.float64), x, outputs)
    reference = Reference(seen, losses, labels, CLASSES, np.zeros(ROWS, np.int64), NAMES, ("degC", "degC", "", ""))
    rise = MonitorSpec(parameters=RULE.to_parameters(), batch_size=RULE.batch_size, false_alarm_rate=1e-3)
    rng = np.random.default_rng(1)
    level, level_arrays = calibrate_loss_level(losses, batch_size=SIZE, rate=RATE, rng=rng)
    free, free_arrays = unlabelled.calibrate(reference, batch_size=SIZE, rate=RATE, rng=rng)
    draw = arrivals.calibrate_arrivals(reference, mature_s=100.0)
    specs = {LOSS_RISE: rise, "loss-level": level, "label-free": free, "arrivals": draw.to_spec()}
    arrays = {"loss-level": level_arrays, "label-free": free_arrays, "arrivals": draw.to_arrays()}
    return specs, encode_drift_arrays(arrays)


def watched_bundle(bundle: Bundle) -> Bundle:
    """The bundle, with monitors; beside it, once."""
    path = bundle.path.with_name(f"{bundle.path.name}-watched")
    if path.exists():
        return load_bundle(path)
    specs, arrays = _calibrated()
    files = {name: bundle.read(name) for name in bundle.manifest.files} | {"drift.safetensors": arrays}
    features = [FeatureSpec(name=name) for name in NAMES]
    update = {"monitors": specs, "files": file_digests(files), "features": features}
    return write_bundle(path, bundle.manifest.model_copy(update=update), files)


def rules_of(bundle: Bundle, **settings: object) -> WatchRules:
    """Its rules by these settings."""
    return watch_rules(MonitorSection.model_validate({"rule": "loss-level", **settings}), bundle)


def served_of(
    bundle: Bundle, first: int, x: NDArray[np.float32], outputs: NDArray[np.float32], weights: str = OWN
) -> tuple[SampleBatch, Served]:
    """Samples ``s<first>`` ... at their numbers as times."""
    ids = [f"s{first + k}" for k in range(len(x))]
    batch = SampleBatch(ids, [float(first + k) for k in range(len(x))], {"x": x})
    return batch, Served(outputs, bundle.digest, weights, 1, "root")


def labelled(first: int, labels: NDArray[np.int64]) -> list[Label]:
    """Their labels."""
    return [Label(f"s{first + k}", int(value)) for k, value in enumerate(labels)]
