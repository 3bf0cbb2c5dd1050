"""The cases of the recovery benchmark: name, draw by seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from tests.benchmarks.cohorts_data.digits import DigitsFleet
from tests.benchmarks.cohorts_data.drifted import Drifted
from tests.benchmarks.cohorts_data.gas import RECIPES, GasFleet
from tests.benchmarks.cohorts_data.motion import REMOUNTS, MotionFleet
from tests.benchmarks.cohorts_data.synthetic import Recipe, draw

Claim = Literal["level", "power", "pairs", "below"]
Section = Literal["synthetic", "gas", "gas Adam 0.003", "gas descent", "motion", "digits"]
SUBJECTS = (1, 2, 9, 10, 5, 6, 7, 8, 3, 4)
DEMO = ((0, (1, 2, 9, 10)), (1, (5, 6, 7, 8)))
MOTION_BASES = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        claim: what it bears on.
        slow: left out of a quick run.
    """

    name: str
    section: Section
    claim: Claim
    draw: Callable[[int], Drifted]
    slow: bool = False


def synthetic_cases(*, large: bool = False) -> Iterator[Case]:
    """Levels, powers, pairs and singletons on synthetic changes."""
    for parameters in (2_000, 20_000, 545_000) if large else (2_000, 20_000):
        for snr in (2.0, 1.0, 0.5, 0.25):
            for rank in (None, 20):
                yield from _levels(parameters, snr, rank)
                yield from _powers(parameters, snr, rank)
    yield from _pairs()


def _levels(parameters: int, snr: float, rank: int | None) -> Iterator[Case]:
    for members in (2, 4, 8, 25):
        recipe = Recipe([members], parameters, snr, rank, steps=True, halves=True, stable=2)
        slow = parameters != 2_000 or snr != 0.5 or members == 25
        yield Case(f"one family of {members}, {_words(recipe)}", "synthetic", "level", partial(draw, recipe), slow)


def _powers(parameters: int, snr: float, rank: int | None) -> Iterator[Case]:
    least = 0.5 if rank is None else 1.0
    all_shapes = parameters >= 20_000 and snr == least
    for sizes in ([4, 4], [4] * 5, [8, 8, 8], [25, 25], [4, 1, 1]) if all_shapes else ([4, 4], [4] * 5):
        for shared, common in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)) if all_shapes else ((0.0, 0.0),):
            recipe = Recipe(sizes, parameters, snr, rank, steps=True, shared=shared, common=common, halves=True)
            quick = all_shapes and sizes == [4, 4]
            claim: Claim = "below" if parameters < 20_000 or snr < least else "power" if min(sizes) >= 4 else "pairs"
            yield Case(f"{sizes}, {_words(recipe)}", "synthetic", claim, partial(draw, recipe), not quick)


def _pairs() -> Iterator[Case]:
    for sizes in ([1, 1], [1] * 4, [1] * 8, [2, 1], [2, 2], [2, 1, 1]):
        for shared in (0.0, 1.0):
            for snr in (1.0, 0.5):
                recipe = Recipe(sizes, 20_000, snr, steps=True, shared=shared, halves=True)
                quick = sizes == [1, 1]
                yield Case(f"{sizes}, {_words(recipe)}", "synthetic", "pairs", partial(draw, recipe), not quick)


def _words(recipe: Recipe) -> str:
    noise = "isotropic" if recipe.rank is None else f"rank {recipe.rank}"
    extra = ", shared change" if recipe.shared else ", common direction" if recipe.common else ""
    return f"d {recipe.parameters}, snr {recipe.snr:g}, {noise}{extra}"


def gas_cases(data: Path, work: Path) -> Iterator[Case]:
    """Clients on gas-sensor batches."""
    fleet = cache(lambda: GasFleet(data, work))

    def fixed(families: list[tuple[int, int]]) -> Callable[[int], Drifted]:
        return lambda seed: fleet().draw(families, seed)

    def mixed(batches: list[int]) -> Callable[[int], Drifted]:
        return lambda seed: fleet().draw(
            [
                (b, int(n))
                for b, n in zip(batches, np.random.default_rng(seed).integers(1, 7, len(batches)), strict=True)
            ],
            seed,
        )

    for batch in (2, 3, 4, 6):
        for members in (2, 4, 8):
            yield Case(f"batch {batch} x {members}", "gas", "level", fixed([(batch, members)]), members != 4)
    yield Case("batch 6 x 25", "gas", "level", fixed([(6, 25)]), True)
    screened = cache(lambda: GasFleet(data, work, folder="gas-screened").screened(data))
    for members in (2, 4, 8):
        drawn = partial(lambda of, seed: screened().draw([(2, of)], seed), members)
        yield Case(f"batch 2 x {members}, sensor faults screened", "gas", "level", drawn, True)
    for batches in ([3, 4], [3, 6], [4, 6], [4, 6, 2], [3, 4, 6, 2], [2, 3]):
        for members in (1, 2, 4):
            claim: Claim = "power" if members == 4 else "pairs"
            families = [(batch, members) for batch in batches]
            yield Case(f"batches {batches} x {members}", "gas", claim, fixed(families), members != 4)
        yield Case(f"batches {batches} x 1-6", "gas", "pairs", mixed(batches), True)


def recipe_cases(data: Path, work: Path) -> Iterator[Case]:
    """The same gas clients trained longer, and by another optimiser."""
    recipes: dict[Section, str] = {"gas Adam 0.003": "Adam 0.003 x 10", "gas descent": "descent 0.01 x 10"}
    for section, recipe in recipes.items():
        fleet = cache(partial(GasFleet, data, work, RECIPES[recipe]))

        def of(batches: Sequence[int], members: int, fleet: Callable[[], GasFleet] = fleet) -> Callable[[int], Drifted]:
            return lambda seed: fleet().draw([(batch, members) for batch in batches], seed)

        for batch in (2, 3, 4, 6):
            for members in (2, 4, 8):
                yield Case(f"batch {batch} x {members}", section, "level", of([batch], members), True)
        for batches, members in (([3, 4], 4), ([3, 6], 4), ([4, 6, 2], 4), ([3, 4, 6, 2], 4), ([4, 6], 2), ([4, 6], 1)):
            claim: Claim = "power" if members == 4 else "pairs"
            yield Case(f"batches {batches} x {members}", section, claim, of(batches, members), True)


def digit_cases(data: Path, work: Path) -> Iterator[Case]:
    """Clients on digits whose labels are swapped or whose images are turned."""
    fleet = cache(lambda: DigitsFleet(data, work))

    def of(drifts: Sequence[str], members: int) -> Callable[[int], Drifted]:
        return lambda seed: fleet().draw([(drift, members) for drift in drifts], seed)

    for drift in ("swap 12 34", "turn 90", "turn 180"):
        for members in (2, 4, 8, 25):
            yield Case(f"{drift} x {members}", "digits", "level", of([drift], members), True)
    for drifts in (
        ("swap 12 34", "swap 56 78"),
        ("swap 12 34", "swap 12 56"),
        ("turn 90", "turn 180", "turn 270"),
        ("turn 90", "swap 12 34"),
    ):
        for members in (1, 2, 4):
            claim: Claim = "power" if members == 4 else "pairs"
            quick = members == 4 and drifts[0] == "turn 90"
            yield Case(f"{' | '.join(drifts)} x {members}", "digits", claim, of(drifts, members), not quick)


def motion_cases(work: Path) -> Iterator[Case]:
    """Clients with remounted motion sensors."""
    fleet = cache(partial(MotionFleet, work))

    def people(seed: int) -> tuple[int, ...]:
        return tuple(int(s) for s in np.random.default_rng(seed).permutation(SUBJECTS))

    def level(members: int) -> Callable[[int], Drifted]:
        return lambda seed: fleet(seed % MOTION_BASES).draw([(seed % len(REMOUNTS), people(seed)[:members])], seed)

    def apart(remounts: tuple[int, ...], members: int) -> Callable[[int], Drifted]:
        return lambda seed: fleet(seed % MOTION_BASES).draw(
            [(r, people(seed)[k * members : (k + 1) * members]) for k, r in enumerate(remounts)], seed
        )

    yield Case("the demo's two families of 4", "motion", "power", lambda s: fleet(s % MOTION_BASES).draw(DEMO, s), True)
    for members in (2, 4, 8):
        yield Case(f"one remount x {members}", "motion", "level", level(members), True)
    for members in (1, 2, 4):
        for remounts in ((0, 1), (2, 4), (1, 3)):
            claim: Claim = "power" if members == 4 else "pairs"
            yield Case(f"remounts {list(remounts)} x {members}", "motion", claim, apart(remounts, members), True)
    yield Case("remounts [0, 1, 2] x 3", "motion", "pairs", apart((0, 1, 2), 3), True)
