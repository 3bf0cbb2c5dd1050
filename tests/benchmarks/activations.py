"""``python -m tests.benchmarks activations [--quick] [--save]``: are new weights flagged that change nothing?

Losses of made worlds: a reference, 512 or 1,024 losses by the weights before, and the 256 first ones by new weights, of
the same world, or of one in which mistakes have become many. Flagged as plainly worse or not, by what a gateway asks of
an activation that answers no flag; beside it the same by the losses before alone, without the reference.
"""

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.sequential.calibration import judged_series
from edge_agent.drift.sequential.table import Distribution
from edge_agent.runtime.watch_answer import Usual, no_worse_than, unanswered, with_losses
from tests.benchmarks.report import keep

NAME, TITLE = "activations", "Activations that are flagged as harm"
SAMPLES, BEFORE, REFERENCE = 256, (512, 1024), (1000, 4000)
REFERENCES, ACTIVATIONS = 12, 250
QUIET = Finding(0.0, 1.0, 1.0, rows=SAMPLES)

Losses = NDArray[np.float64]
World = Callable[[int, np.random.Generator], Losses]


def autoregressive(phi: float, rows: int, rng: np.random.Generator) -> Losses:
    """Squares of a Gaussian AR(1)."""
    steps = rng.normal(size=rows) * np.sqrt(1 - phi**2)
    level: Losses = lfilter([1.0], [1.0, -phi], steps, zi=[phi * rng.normal()])[0]
    return level**2


def in_bursts(every: int, rows: int, rng: np.random.Generator) -> Losses:
    """64 mistakes on end, begun once in so many samples."""
    begun = rng.random(rows + 64) < 1 / every
    wrong = np.convolve(begun, np.ones(64))[64 : 64 + rows] > 0
    return np.where(wrong, 0.5 + rng.exponential(1.0, rows), rng.exponential(0.05, rows))


def moving(by: float, rows: int, rng: np.random.Generator) -> Losses:
    """A level that moves by so much, up and down in 2,000 samples."""
    phase = 2 * np.pi * (np.arange(rows) + rng.integers(2000)) / 2000
    return np.asarray(rng.exponential(1, rows) * (1 + by * np.sin(phase)))


def seldom_wrong(share: float, rows: int, rng: np.random.Generator) -> Losses:
    """Mistakes in so small a share."""
    return np.where(rng.random(rows) < share, 0.7 + rng.exponential(1.5, rows), rng.exponential(0.004, rows))


def higher(phi: float, rows: int, rng: np.random.Generator) -> Losses:
    """Those of an AR(1), higher by a deviation of theirs."""
    return autoregressive(phi, rows, rng) + math.sqrt(2)


SELDOM = partial(seldom_wrong, 1 / 200)
SAME: Mapping[str, World] = {
    **{f"AR(1) {phi:g}": partial(autoregressive, phi) for phi in (0.0, 0.3, 0.6, 0.9, 0.98)},
    **{f"bursts, once in {every}": partial(in_bursts, every) for every in (1000, 300)},
    **{f"a level that moves by {by:g}": partial(moving, by) for by in (0.5, 0.9)},
    "one mistake in 200": SELDOM,
}
HARM: Mapping[str, tuple[World, World]] = {
    **{
        f"AR(1) {phi:g}, higher by a deviation": (partial(autoregressive, phi), partial(higher, phi))
        for phi in (0.0, 0.9)
    },
    **{f"one mistake in 200, then in {one}": (SELDOM, partial(seldom_wrong, 1 / one)) for one in (20, 10)},
}
WORLDS: Mapping[str, tuple[World, World, float | None]] = MappingProxyType(
    {name: (world, world, None) for name, world in SAME.items()}
    | {f"harm: {name}": (*worlds, None) for name, worlds in HARM.items()}
    | {
        f"{classes} classes, one mistake in 200, then in {one}": (
            SELDOM,
            partial(seldom_wrong, 1 / one),
            math.log(classes),
        )
        for classes in (2, 6)
        for one in (200, 20, 10)
    }
)
"""Losses by the weights before, by the new ones, and a guess's, where it is known."""


@dataclass(frozen=True, slots=True)
class Case:
    """Activations of one world.

    Attributes:
        world: losses before and after.
        reference, before: losses in the reference, and by the weights before.
        activations: how many.
        flagged, alone: how many of them are flagged; by the losses before alone.
    """

    world: str
    reference: int
    before: int
    activations: int
    flagged: int
    alone: int


def main(arguments: Sequence[str]) -> None:
    """Run all worlds, print a line each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks activations")
    parser.add_argument("--quick", action="store_true", help="few activations: seconds")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    references, each = (2, 10) if options.quick else (REFERENCES, ACTIVATIONS)
    found: list[Case] = []
    for world in WORLDS:
        for reference in REFERENCE:
            found += [case(world, reference, before, references, each) for before in BEFORE]
            for one in found[-len(BEFORE) :]:
                print(line(one), flush=True)
    if options.save:
        print(f"saved: {keep(NAME, TITLE, {'cases': [asdict(one) for one in found]}).name}")


def case(world: str, reference: int, before: int, references: int, each: int) -> Case:
    """So many activations beside each of so many references."""
    usually, after, guess = WORLDS[world]
    flagged = alone = 0
    for number in range(references):
        rng = np.random.default_rng([number, reference, before])
        losses = usually(reference, rng)
        usual = Usual(Distribution.of(losses), dependence(judged_series(losses)).inflation, len(losses))
        for _ in range(each):
            stream = usually(before + SAMPLES, rng)
            new = stream[before:] if after is usually else after(SAMPLES, rng)
            flagged += is_flagged(stream[:before], new, usual, guess)
            alone += is_flagged(stream[:before], new, None, guess)
    return Case(world, reference, before, references * each, flagged, alone)


def is_flagged(before: Losses, new: Losses, usual: Usual | None, guess: float | None) -> bool:
    """As a gateway asks of new weights."""
    asked = no_worse_than(before, len(new), guess=guess, usual=usual)
    if asked is None:
        return False
    nothing = np.full(len(new), np.nan)
    shown = Labelled([str(number) for number in range(len(new))], np.zeros(len(new)), new, nothing)
    return unanswered(with_losses(asked, shown, None), QUIET) is not None


def line(one: Case) -> str:
    """For people."""
    shares = (
        f"{one.flagged / one.activations:.2%} flagged, {one.alone / one.activations:.2%} by the losses before alone"
    )
    return f"  {one.world:46s} reference {one.reference:5d}, before {one.before:5d}: {shares}"
