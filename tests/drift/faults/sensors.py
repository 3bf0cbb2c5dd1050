"""Sensors to screen: a bundle's manifest for them, streams of readings, and faults put into them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults import FaultParams, FaultReport, FaultState, calibrate, step
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.wire.manifest import FeatureSpec, Manifest, OutputSpec, TensorSpec, TrainableSpec

Readings = NDArray[np.float64]


def manifest_of(*shapes: Sequence[int], features: Sequence[FeatureSpec] = ()) -> Manifest:
    """Of a model with such inputs, ``x0``, ``x1`` ..."""
    return Manifest(
        name="sensors",
        kind="regression",
        inputs=[
            TensorSpec(name=f"x{place}", dtype="float32", shape=["batch", *shape]) for place, shape in enumerate(shapes)
        ],
        outputs=[OutputSpec(name="y", dtype="float32", shape=["batch", 1], role="value")],
        features=list(features),
        loss="mse",
        trainable=[TrainableSpec(name="w", dtype="float32", shape=[1])],
        opset=17,
        minimum_agent_version="0.1.0",
        files=dict.fromkeys(("infer.onnx", "weights.safetensors"), "0" * 64),
    )


def observed(readings: Readings, times_s: Readings | None = None) -> Observed:
    n = len(readings)
    times = np.arange(n, dtype=np.float64) if times_s is None else times_s
    return Observed(
        [f"s{row}" for row in range(n)], times, readings.reshape(n, int(np.prod(readings.shape[1:]))), np.zeros((n, 1))
    )


def params_of(
    readings: Readings, manifest: Manifest | None = None, segments: NDArray[np.int64] | None = None
) -> FaultParams:
    n = len(readings)
    segments = np.zeros(n, np.int64) if segments is None else segments
    reference = Reference(observed(readings), np.zeros(n), np.zeros(n), None, segments, (), ())
    return calibrate(reference, manifest or manifest_of(readings.shape[1:]))


def screened(
    params: FaultParams, readings: Readings, *, batch: int = 32, state: FaultState | None = None
) -> tuple[FaultState, NDArray[np.bool_], list[FaultReport]]:
    """All readings in batches: the state after them, (n, f) the broken ones, and what was told; times count rows."""
    state = FaultState.start(params) if state is None else state
    masks: list[NDArray[np.bool_]] = []
    reports: list[FaultReport] = []
    for start in range(0, len(readings), batch):
        part = readings[start : start + batch]
        times = state.seen + np.arange(len(part), dtype=np.float64)
        state, found = step(params, state, observed(part, times))
        shape = (len(part), params.channels.columns)
        masks.append(np.zeros(shape, np.bool_) if found.faulty is None else found.faulty)
        reports += found.reports
    return state, np.concatenate(masks), reports


def begun(reports: list[FaultReport]) -> list[tuple[str, int]]:
    """(what, sensor) of the faults that began."""
    return [(report.kind.word, report.sensor) for report in reports if report.until_s is None]


def slow(rows: int, sensors: int, seed: int) -> Readings:
    """Sensors that change slowly about levels of their own, as temperatures do: AR(1) of 0.95, deviation about 1."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(rows, sensors)) * np.sqrt(1 - 0.95**2)
    readings = np.empty((rows, sensors))
    level = rng.normal(size=sensors)
    for row in range(rows):
        level = 0.95 * level + noise[row]
        readings[row] = level
    return readings + 20.0 + 5.0 * np.arange(sensors)
