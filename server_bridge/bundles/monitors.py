"""All monitors of a bundle, calibrated on one reference to what the operator wants of false alarms."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.arrays import DRIFT_FILE, MonitorArrays, encode_drift_arrays
from edge_agent.drift.calibration import calibrate_loss_rise, refuse_few
from edge_agent.drift.loss_rise import MONITOR_NAME
from edge_agent.drift.promise.tolerable import TOLERABLE_RATE
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.model.bundle import file_digests
from edge_agent.wire.manifest import Manifest, MonitorSpec, PromiseSpec
from server_bridge.bundles.calibrate import Run, judged_outputs
from server_bridge.bundles.data import LabelledData
from server_bridge.bundles.makers import MAKERS, PLAIN_MAKERS
from server_bridge.bundles.rates import rate_of_times
from server_bridge.bundles.reference import reference_of
from server_bridge.bundles.support import EFFECTIVE_LEAST, Asked, Maker, PlainMaker, Support
from server_bridge.bundles.wish import Wish

AIMED_RATE = 1e-4
"""False alarms a batch that the deciding threshold would have on a stream of the reference's own blocks, where the
reference cannot promise as few: what can be promised holds all the more, and nobody wants an alarm in 20 batches."""
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
    manifest: Manifest,
    *,
    batch_size: int,
    wish: Wish,
    seed: int,
    told: Told = lambda name, share: None,
    makers: Sequence[Maker] = MAKERS,
    plain: Sequence[PlainMaker] = PLAIN_MAKERS,
) -> Monitors:
    """Every monitor that the reference can support; ``loss-rise``, by its own rule, always.

    Args:
        reference: in the order of its times.
        manifest: of the bundle; its monitors are not looked at.
        batch_size: samples a batch of every monitor; the estimated accuracy takes several of them a step.
        wish: with the stream's rate, where it is known.
        seed: of all resampling.

    Raises:
        ConfigError: the wish makes no sense for this stream.
        DataError: too few rows; losses that say nothing; or a rate that was asked for and is not supported.

    Cost: seconds a monitor; below `EFFECTIVE_LEAST` independent batches only what ``loss-rise`` takes.
    """
    refuse_few(len(reference), batch_size)
    task = _Task(reference, manifest, batch_size, wish, seed, told)
    notes: list[str] = []
    specs, arrays = {MONITOR_NAME: task.loss_rise()}, MonitorArrays()
    supports = task.supports(makers, notes)
    task.refuse_unsupported(supports)
    notes += _order_notes(reference, supports.values())
    for maker in makers:
        if maker.name in supports and (made := task.made(maker, supports[maker.name], notes)) is not None:
            specs[maker.name], arrays[maker.name] = made
    for one in plain:
        if (stated := task.stated(one, notes)) is not None:
            specs[one.name], arrays[one.name] = stated
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
    return calibrated(reference, manifest, batch_size=batch_size, wish=wish.with_stream(rate), seed=seed, told=told)


@dataclass(frozen=True)
class _Task:
    """What every monitor of a build is calibrated with."""

    reference: Reference
    manifest: Manifest
    batch_size: int
    wish: Wish
    seed: int
    told: Told

    @property
    def wanted(self) -> float:
        return self.wish.of_one(self.batch_size)

    def loss_rise(self) -> MonitorSpec:
        rng, losses = np.random.default_rng(self.seed), self.reference.losses
        return calibrate_loss_rise(losses, batch_size=self.batch_size, classes=self.reference.classes, rng=rng)

    def supports(self, makers: Sequence[Maker], notes: list[str]) -> dict[str, Support]:
        """What the reference is worth to each monitor that can be calibrated on it."""
        found: dict[str, Support] = {}
        few = [one for one in makers if self.wish.false_alarms is None and self._needs(one) > len(self.reference)]
        for needed in sorted({self._needs(one) for one in few}):
            names = " and ".join(one.name for one in few if self._needs(one) == needed)
            notes.append(f"{names} left out: {len(self.reference)} rows, {needed} are needed")
        for maker in (one for one in makers if one not in few):
            try:
                found[maker.name] = Support.of(maker.series(self.reference, self.batch_size), self.batch_size)
            except DataError as error:
                self._unless_asked(maker.name, error, notes)
        return found

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

    def made(
        self, maker: Maker, support: Support, notes: list[str]
    ) -> tuple[MonitorSpec, dict[str, NDArray[Any]]] | None:
        aimed = self._aims(maker, support)
        rate = self._aim(maker) if aimed else max(self.wanted, support.lowest_rate)
        asked = Asked(self.batch_size, rate, self._rng(maker.name), partial(self.told, maker.name), aimed)
        asked.progress(0.0)
        try:
            spec, arrays = maker.calibrate(self.reference, asked)
        except DataError as error:
            self._unless_asked(maker.name, error, notes)
            return None
        words = self._promised(maker, support, rate, aimed=aimed, notes=notes)
        promise = spec.promise or PromiseSpec(
            lowest_rate=support.lowest_rate,
            block_rows=support.block_rows,
            effective_batches=support.effective_batches,
        )
        return spec.model_copy(update={"promise": promise.model_copy(update={"words": words})}), dict(arrays)

    def stated(self, maker: PlainMaker, notes: list[str]) -> tuple[MonitorSpec, dict[str, NDArray[Any]]] | None:
        try:
            spec, arrays = maker.calibrate(self.reference, self.manifest, self.batch_size, self._rng(maker.name))
        except DataError as error:
            notes.append(f"{maker.name} is left out: {error.problem}")
            return None
        return spec, dict(arrays)

    def _needs(self, maker: Maker) -> int:
        """Rows without which nothing is made of it unless it is asked for."""
        return max(maker.least_rows, math.ceil(maker.least_batches * self.batch_size))

    def _aims(self, maker: Maker, support: Support) -> bool:
        """Whether the threshold is that of a rate which the reference cannot promise, and nobody asked for one."""
        if maker.decides:
            return not self.wish.asked and support.lowest_rate > max(self.wanted, TOLERABLE_RATE)
        return self.wish.false_alarms is None and support.effective_batches < EFFECTIVE_LEAST

    def _aim(self, maker: Maker) -> float:
        return AIMED_RATE if maker.decides else max(self.wanted, TOLERABLE_RATE)

    def _promised(self, maker: Maker, support: Support, rate: float, *, aimed: bool, notes: list[str]) -> str:
        """The promise in words; what it lacks is noted."""
        words, name = self._said(rate), maker.name
        if aimed and not (maker.decides and support.promises):
            worth = f"{support.effective_batches:.1f} independent batches of {self.batch_size}"
            only = "" if maker.decides else " and only warns"
            notes.append(
                f"{name} promises nothing{only}: to it {len(self.reference)} rows are worth {worth}, "
                f"{1 if maker.decides else EFFECTIVE_LEAST:.0f} are needed"
            )
            return f"none; aims at {words}{'' if maker.decides else ', only warns'}"
        if aimed:
            words = f"{self._said(support.lowest_rate)}, the lowest supported; aims at {words}"
        elif rate > self.wanted:
            words += ", the lowest supported"
        if rate > self.wanted or aimed:
            notes.append(f"{name} promises {words}; {self._said(self.wanted)} would need more rows")
        return words

    def _unless_asked(self, name: str, error: DataError, notes: list[str]) -> None:
        if self.wish.asked:
            raise error
        notes.append(f"{name} is left out: {error.problem}")

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng((self.seed, crc32(name.encode())))

    def _said(self, rate: float) -> str:
        return self.wish.words(rate, self.batch_size)


def _order_notes(reference: Reference, supports: Collection[Support]) -> list[str]:
    if not supports or len(reference) < _ORDER_ROWS or any(support.block_rows > 1 for support in supports):
        return []
    return [
        "the rows' order says nothing: they are shuffled, or independent. On a stream whose neighbours resemble each "
        "other the promise would not hold: then give the rows in their order, or an array `time`"
    ]
