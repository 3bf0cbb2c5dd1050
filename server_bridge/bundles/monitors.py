"""All monitors of a bundle, calibrated on one reference to what the operator wants of false alarms."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.arrays import DRIFT_FILE, MonitorArrays, encode_drift_arrays
from edge_agent.drift.calibration import calibrate_loss_rise, refuse_few
from edge_agent.drift.loss_rise import MONITOR_NAME
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.model.bundle import file_digests
from edge_agent.wire.manifest import Manifest, MonitorSpec, PromiseSpec
from server_bridge.bundles.calibrate import Run, judged_outputs
from server_bridge.bundles.data import LabelledData
from server_bridge.bundles.makers import MAKERS
from server_bridge.bundles.rates import rate_of_times
from server_bridge.bundles.reference import reference_of
from server_bridge.bundles.support import Maker, Support
from server_bridge.bundles.wish import Wish

EFFECTIVE_LEAST = 10.0
"""Independent batches. On a reference with fewer, no monitor but `loss-rise` is calibrated unless it is asked for: all
that it could promise is a false alarm in less than 20 batches."""
_ORDER_ROWS = 100

Told = Callable[[str, float], None]
"""Told the monitor that is being calibrated, and the share of its work that is done."""
Noted = Callable[[tuple[str, ...]], None]
"""Given what an operator should know of a calibration, a sentence each."""


@dataclass(frozen=True)
class Monitors:
    """What calibration gave.

    Attributes:
        specs: the manifest's ``monitors``.
        arrays: of ``drift.safetensors``.
        notes: what an operator should know, a sentence each.
    """

    specs: dict[str, MonitorSpec]
    arrays: MonitorArrays = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def in_bundle(self, manifest: Manifest, files: Mapping[str, bytes]) -> tuple[Manifest, dict[str, bytes]]:
        """The manifest with these monitors and the digests of all files, and the files, the monitors' among them."""
        others = {name: data for name, data in files.items() if name != DRIFT_FILE}
        held = others | self.files()
        return manifest.model_copy(update={"monitors": self.specs, "files": file_digests(held)}), held

    def files(self) -> dict[str, bytes]:
        """The arrays as a file of the bundle, by its name; none where no monitor has arrays."""
        return {DRIFT_FILE: encode_drift_arrays(self.arrays)} if any(self.arrays.values()) else {}


def calibrated(
    reference: Reference,
    *,
    batch_size: int,
    wish: Wish,
    seed: int,
    told: Told = lambda name, share: None,
    makers: Sequence[Maker] = MAKERS,
) -> Monitors:
    """Every monitor that the reference can support; ``loss-rise``, by its own rule, always.

    Args:
        reference: in the order of its times.
        batch_size: samples a batch of every monitor.
        wish: with the stream's rate, where it is known.
        seed: of all resampling.

    Raises:
        ConfigError: the wish makes no sense for this stream.
        DataError: too few rows; losses that say nothing; or a rate that was asked for and is not supported.

    Cost: a few seconds a monitor; below `EFFECTIVE_LEAST` independent batches only what ``loss-rise`` takes.
    """
    refuse_few(len(reference), batch_size)
    task = _Task(reference, batch_size, wish, seed, told)
    supports = {maker.name: Support.of(maker.series(reference), batch_size) for maker in makers}
    task.refuse_unsupported(supports)
    specs, arrays, notes = {MONITOR_NAME: task.loss_rise()}, MonitorArrays(), _order_notes(reference, supports.values())
    for number, maker in enumerate(makers):
        support = supports[maker.name]
        if wish.false_alarms is None and support.effective_batches < EFFECTIVE_LEAST:
            notes.append(
                f"{maker.name} is left out: {len(reference)} rows are worth {support.effective_batches:.1f} independent"
                f" batches of {batch_size}, {EFFECTIVE_LEAST:.0f} are needed"
            )
            continue
        specs[maker.name], arrays[maker.name], lowered = task.made(maker, support, number)
        notes += lowered
    return Monitors(specs, arrays, tuple(notes))


def monitors_on(
    manifest: Manifest,
    run: Run,
    data: LabelledData,
    *,
    batch_size: int,
    wish: Wish,
    seed: int,
    told: Told = lambda name, share: None,
) -> Monitors:
    """The monitors of a model with these outputs, by held-out data.

    Raises:
        ConfigError, DataError: as :func:`calibrated`, and where the graph's batch is not the data's.
    """
    reference = reference_of(manifest, data, judged_outputs(manifest, run, data))
    rate = None if data.times is None else rate_of_times(reference.observed.times_s)
    return calibrated(reference, batch_size=batch_size, wish=wish.with_stream(rate), seed=seed, told=told)


@dataclass(frozen=True)
class _Task:
    """What every monitor of a build is calibrated with."""

    reference: Reference
    batch_size: int
    wish: Wish
    seed: int
    told: Told

    @property
    def wanted(self) -> float:
        return self.wish.of_one(self.batch_size)

    def refuse_unsupported(self, supports: Mapping[str, Support]) -> None:
        name = max(supports, key=lambda known: supports[known].lowest_rate, default="")
        if not (self.wish.asked and name and self.wanted < supports[name].lowest_rate):
            return
        rows, support = len(self.reference), supports[name]
        needed = self.wish.rows_needed(rows, support.lowest_rate, self.batch_size)
        raise DataError(
            f"{rows} rows, worth {support.effective_batches:.0f} independent batches of {self.batch_size} to monitor "
            f"{name}, do not support {self._said(self.wanted)}; the lowest is {self._said(support.lowest_rate)}",
            f"give about {needed} rows; or ask for no fewer, each of the two monitors has half of the bundle's false "
            "alarms; or add --lowest to take what is supported",
        )

    def loss_rise(self) -> MonitorSpec:
        rng, losses = np.random.default_rng(self.seed), self.reference.losses
        return calibrate_loss_rise(losses, batch_size=self.batch_size, classes=self.reference.classes, rng=rng)

    def made(
        self, maker: Maker, support: Support, number: int
    ) -> tuple[MonitorSpec, dict[str, NDArray[Any]], list[str]]:
        rate = max(self.wanted, support.lowest_rate)
        rng = np.random.default_rng((self.seed, number))
        spec, arrays = maker.calibrate(self.reference, rate, self.batch_size, rng, partial(self.told, maker.name))
        promise = spec.promise or PromiseSpec(
            lowest_rate=support.lowest_rate,
            block_rows=support.block_rows,
            effective_batches=support.effective_batches,
        )
        lowered = rate > self.wanted
        words = f"{self._said(rate)}{', the lowest supported' if lowered else ''}"
        spec = spec.model_copy(update={"promise": promise.model_copy(update={"words": words})})
        note = f"{maker.name} promises {words}; {self._said(self.wanted)} would need more rows"
        return spec, dict(arrays), [note] if lowered else []

    def _said(self, rate: float) -> str:
        return self.wish.words(rate, self.batch_size)


def _order_notes(reference: Reference, supports: Collection[Support]) -> list[str]:
    if not supports or len(reference) < _ORDER_ROWS or any(support.block_rows > 1 for support in supports):
        return []
    return [
        "the rows' order says nothing: they are shuffled, or independent. On a stream whose neighbours resemble each "
        "other the promise would not hold: then give the rows in their order, or an array `time`"
    ]
