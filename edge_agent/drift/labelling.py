"""What the labels that have come may be used for: how many, how late, and of which samples.

The test that labelling is fair needs nothing but who was labelled: given how many of a period's drawn samples have
their label, fair labelling makes each set of that size equally likely. Each way of leaning (to doubtful outputs, away
from a class, ...) is a betting strategy with a fair stake, its value the likelihood ratio of the tilted to the uniform
draw; values multiply over periods, and the mean over strategies and over the period where leaning began is an e-value:
its expectation under fair labelling is at most 1, so it passes 1 / level with at most that chance at a look.

Seen is what the outputs tell (confidence, predicted class). Labelling that leans to failures which the model made with
the same confidence and class as its successes is not seen, by this or by anything else that has no other labels.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.arrivals import BINS, ArrivalsParams, ArrivalsState, drawn_of, held

Use = Literal["plain", "weighted", "declared-biased", "no-evidence"]
"""Of the labelled samples: as they are; weighed by cell; for nothing that speaks of all samples; none has come."""
_BIN_LEANS = (-3.0, -1.0, 1.0, 3.0)
_CLASS_LEANS = (-2.0, 2.0)
_QUANTILES = (0.1, 0.5, 0.9, 0.99)
LEAST_IN_CELL = 5
LARGEST_WEIGHT = 10.0
_LEAST_SHARE = 0.01
_RAKINGS = 20
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class LabelEvidence:
    """Of the kept periods of serving that are old enough for their labels to have come.

    Attributes:
        served: samples served in them; exact where no period had more than 128, else estimated.
        drawn, labelled: of them in the draw, and of these with a label in time.
        share: labelled / drawn; NaN where none is drawn.
        delays_s: 10, 50, 90 and 99 % quantiles of the known delays of labelled ones, running seconds; NaN: none known.
        young: drawn samples that are too young to judge.
        e_value: against fair labelling; biased where it is above ``limit`` = 1 / level.
        leaning: the strongest way of leaning found, in words; "" where not biased.
        use: what the labelled samples may be used for.
        weights: by cell, mean 1 over the labelled; for ``weighted`` only.
    """

    served: float
    drawn: int
    labelled: int
    share: float
    delays_s: tuple[float, float, float, float]
    young: int
    e_value: float
    limit: float
    leaning: str
    use: Use
    weights: NDArray[np.float64] | None = field(default=None, repr=False)

    @property
    def biased(self) -> bool:
        """Whether labelling is declared biased."""
        return self.e_value > self.limit

    def weights_of(self, cells: NDArray[np.int16]) -> NDArray[np.float64]:
        """(n,) weight of labelled samples of these cells in a mean over all served ones; 1 unless ``weighted``."""
        return np.ones(len(cells)) if self.weights is None else self.weights[cells]


def label_evidence(params: ArrivalsParams, state: ArrivalsState, now_s: float) -> LabelEvidence:
    """What the labels say at a running time.

    Args:
        now_s: running seconds; periods that ended ``mature_s`` before are judged.

    Cost: a few milliseconds; for a status, a flag, or once a period, not for every batch.
    """
    old = (state.period >= 0) & ((state.period + 1) * params.period_s + params.mature_s <= now_s)
    there = held(state.hashes)
    labelled = there & ~(state.delays_s > params.mature_s)
    order = np.flatnonzero(old)[np.argsort(state.period[old])]
    e_value, leaning = _bias(params, [(state.cells[p][there[p]], labelled[p][there[p]]) for p in order])
    drawn, with_label = there[old], labelled[old]
    delays = state.delays_s[old][with_label].astype(np.float64)
    known = delays[np.isfinite(delays)]
    quantiles = np.quantile(known, _QUANTILES) if len(known) else np.full(4, np.nan)
    limit, count = 1.0 / params.level, int(with_label.sum())
    weights = _weights(params, state.cells[old][drawn], with_label[drawn]) if e_value > limit else None
    return LabelEvidence(
        served=float(sum(drawn_of(state.hashes[place]) for place in order)),
        drawn=int(drawn.sum()),
        labelled=count,
        share=count / int(drawn.sum()) if drawn.any() else float("nan"),
        delays_s=(float(quantiles[0]), float(quantiles[1]), float(quantiles[2]), float(quantiles[3])),
        young=int(there[~old].sum()),
        e_value=e_value,
        limit=limit,
        leaning=leaning if e_value > limit else "",
        use=_use(count, e_value > limit, weights),
        weights=weights,
    )


def _use(labelled: int, biased: bool, weights: NDArray[np.float64] | None) -> Use:
    if labelled == 0:
        return "no-evidence"
    if not biased:
        return "plain"
    return "declared-biased" if weights is None else "weighted"


def _leans(params: ArrivalsParams) -> list[tuple[str, NDArray[np.float64]]]:
    """Ways of leaning: in words, and (cells,) the logarithm of the odds that a sample of the cell is labelled."""
    what = "value" if params.classes is None else "confidence"
    cells = np.arange(params.class_cells * BINS)
    ranks = (cells % BINS) / (BINS - 1.0)
    ways = [(f"{'high' if lean > 0 else 'low'} {what}", lean * ranks) for lean in _BIN_LEANS]
    ways += [
        (f"{'to' if lean > 0 else 'away from'} the lowest tenth by {what}", lean * (ranks == 0))
        for lean in _CLASS_LEANS
    ]
    if params.class_cells > 1:
        for number in range(params.class_cells):
            mine = (cells // BINS == number).astype(float)
            ways += [(f"{'to' if lean > 0 else 'away from'} class {number}", lean * mine) for lean in _CLASS_LEANS]
    return ways


def _bias(params: ArrivalsParams, periods: list[tuple[NDArray[np.int16], NDArray[np.bool_]]]) -> tuple[float, str]:
    """The e-value of all ways and beginnings, and the way that has most of it."""
    periods = [(cells, labelled) for cells, labelled in periods if 0 < labelled.sum() < len(labelled)]
    if not periods:
        return 1.0, ""
    ways, size = _leans(params), params.class_cells * BINS
    wealth = np.zeros((len(ways), len(periods)))
    for column, (cells, labelled) in enumerate(periods):
        counts = np.bincount(cells, minlength=size)
        taken = np.bincount(cells[labelled], minlength=size)
        wealth[:, column] = [_log_ratio(lean, counts, taken) for _, lean in ways]
    since = np.cumsum(wealth[:, ::-1], axis=1)
    since = np.minimum(since, 600.0)
    values = np.exp(since).mean(axis=1)
    return float(values.mean()), ways[int(values.argmax())][0]


def _log_ratio(lean: NDArray[np.float64], counts: NDArray[np.int64], taken: NDArray[np.int64]) -> float:
    """Log likelihood of the labelled set, tilted over uniform, given its size."""
    total = int(taken.sum())
    product = np.ones(1)
    for value in sorted(set(lean[counts > 0].tolist())):
        many = int(counts[lean == value].sum())
        product = np.convolve(product, _choices(many) * np.exp(value * np.arange(many + 1)))
    uniform = _choices(int(counts.sum()))[total]
    return float(lean @ taken - np.log(product[total] / uniform))


@lru_cache(maxsize=256)
def _choices(many: int) -> NDArray[np.float64]:
    """(many + 1,) binomial coefficients; up to 128 of them are far from the largest float."""
    values = np.ones(many + 1)
    for k in range(1, many + 1):
        values[k] = values[k - 1] * (many - k + 1) / k
    return values


def _weights(
    params: ArrivalsParams, cells: NDArray[np.int16], labelled: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """By cell, so that labelled samples have the served ones' classes and bins; None: some kind has too few labels.

    Kinds of which hardly any were served or labelled keep the factor 1.

    Source: raking (Deming and Stephan 1940): a factor a class times a factor a bin, fitted in turns.
    """
    kinds = (cells // BINS, cells % BINS)
    if any(_thin(kind, labelled) for kind in kinds):
        return None
    served = [np.bincount(kind) / len(kind) for kind in kinds]
    taken = [np.bincount(kind[labelled], minlength=len(share)) for kind, share in zip(kinds, served, strict=True)]
    factors = [np.ones(len(share)) for share in served]
    for turn in range(2 * _RAKINGS):
        mine, other = turn % 2, 1 - turn % 2
        weights = factors[other][kinds[other][labelled]]
        have = np.bincount(kinds[mine][labelled], weights / weights.sum(), minlength=len(served[mine]))
        raked = served[mine] / np.maximum(have, _TINY)
        factors[mine] = np.where(taken[mine] >= LEAST_IN_CELL, raked, 1.0)
    by_cell = np.ones((params.class_cells, BINS))
    by_cell[: len(factors[0]), : len(factors[1])] = np.outer(*factors)
    weights = by_cell.ravel() / by_cell.ravel()[cells[labelled]].mean()
    return weights if weights.max() <= LARGEST_WEIGHT else None


def _thin(kinds: NDArray[np.int16], labelled: NDArray[np.bool_]) -> bool:
    """Whether a class or bin of more than 1 % of the served samples has fewer than 5 labelled ones."""
    counts = np.bincount(kinds)
    taken = np.bincount(kinds[labelled], minlength=len(counts))
    return bool((taken[counts > _LEAST_SHARE * len(kinds)] < LEAST_IN_CELL).any())
