"""What the losses of their first labelled samples say of new weights.

Whether they have answered the flag that stood; and, where none did, whether they are worse than those before.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.policy.severity import LOSS
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.rises import LOSS_CAP, clip_losses
from edge_agent.drift.sequential.table import Distribution
from edge_agent.wire.messages import FlagEvent

REPAIRED_SHARE = 0.5
RENEWED_AT_MOST = 2
"""In a row: what two answers did not repair, a third will not, and each costs the fleet an adaptation."""

COMPARED_ROWS = 1024
"""Labelled samples of the weights before that new ones are compared with, at most."""
WORSE_BY = 3.72
"""Standard errors: a normal mean exceeds them in 1e-4 of cases."""
_UNSURE = 5.0
"""Over the root of the independent losses that tell how far they depend on each other: by how much of itself that is
widened, since these are few; at least over that of the losses before, since losses are skewed."""
PLAIN_SHARE = 0.05
"""Of a guess's loss: what is less is not plainly worse, however sure it is."""
LASTING_SHARE = 0.5
"""Of what is plainly worse: by so much the two better quarters of the new losses must be worse too. A burst of mistakes
is in one quarter or two, weights that are worse are so from their first sample to their last."""
QUARTERS = 4
_TIMES_AS_MANY = 2
_FARTHEST = 2.0
"""Times the largest loss before, or a guess's: a larger one counts as that, so that no single sample decides."""


class Asked(NamedTuple):
    """What the first labelled samples of new weights are to say.

    Attributes:
        before: mean loss before the drift that was flagged; with no flag, by the weights before.
        drifted: mean loss when it was flagged; with no flag, twice as far from ``before`` as is plainly worse.
        samples: labelled ones of the new weights so far.
        losses: their sum.
        most: with no flag, what a larger loss counts as; None: a flag was to be answered.
        lately: with no flag, the mean of the last losses before, as many as are asked for.
        quarter: with no flag, samples in each of the first three quarters of what is asked for.
        parts: sums of the losses by quarter.
    """

    before: float
    drifted: float
    samples: int = 0
    losses: float = 0.0
    most: float | None = None
    lately: float | None = None
    quarter: int = 0
    parts: tuple[float, ...] = ()

    @classmethod
    def read(cls, stored: Sequence[Any]) -> Self:
        """As JSON has it; of an earlier version without what came later."""
        found = cls(*stored)
        return found._replace(parts=tuple(found.parts))

    @property
    def better_half(self) -> float | None:
        """Mean loss of the two quarters with the lower one; None: quarters are not told apart."""
        rows = [self.quarter] * (QUARTERS - 1) + [self.samples - (QUARTERS - 1) * self.quarter]
        if len(self.parts) < QUARTERS or rows[-1] <= 0:
            return None
        better = sorted((losses / many, losses, many) for losses, many in zip(self.parts, rows, strict=True))[:2]
        return sum(losses for _, losses, _ in better) / sum(many for *_, many in better)


def asked(flag: str | None, waiting: Asked | None) -> Asked | None:
    """What an activation has to answer; None: nothing that losses told.

    Args:
        flag: the one that stands, as JSON.
        waiting: what the activation before has not answered yet.
    """
    if flag is None:
        return None if waiting is None else waiting._replace(samples=0, losses=0.0, parts=())
    told = next((one for one in FlagEvent.model_validate_json(flag).attributions if one.name == LOSS), None)
    return Asked(told.before, told.now) if told is not None and told.now > told.before else None


class Usual(NamedTuple):
    """What the labelled monitor takes for usual.

    Attributes:
        losses: of the weights before; of a bundle's own, those of its reference.
        inflation: of a mean's variance by the autocorrelation of the reference's losses, in their order.
        rows: in the reference.
    """

    losses: Distribution
    inflation: float
    rows: int


def no_worse_than(
    losses: NDArray[Any], samples: int, *, guess: float | None, usual: Usual | None = None
) -> Asked | None:
    """What an activation that answers no flag must not do: make the losses plainly worse than they were.

    Args:
        losses: (n,) of labelled samples by the weights before, in the order in which they were judged.
        samples: labelled ones of the new weights after which it is told.
        guess: a guess's loss; None: not known.
        usual: None: the monitor knows no such.

    Returns:
        None where there are fewer losses than twice ``samples``, or they say nothing.

    Source: one-sided two-sample z-test of means, the variance that of the losses before, times what their
        autocorrelation adds; and the new losses must be worse throughout (``LASTING_SHARE``), beside those just before,
        too, since a level that moves is where it was a moment ago. A thousand losses hardly show what happens once in
        some hundred, and nothing of a level that moves more slowly: autocorrelation adds at least what it does in the
        reference, and the variance is at least that with ``samples`` of the usual losses beside.
    Cost: O(n log n).
    """
    finite = clip_losses(np.asarray(losses, np.float64), None)
    if len(finite) < _TIMES_AS_MANY * samples:
        return None
    inflation, rows = dependence(finite).inflation, len(finite)
    if usual is not None and usual.inflation > inflation:
        inflation, rows = usual.inflation, max(rows, usual.rows)
    beside = None if usual is None else usual.losses.spread(samples)
    one = _plainly_worse(finite, samples, _Inflated(inflation, rows), guess, beside)
    return None if one is None else one._replace(lately=float(finite[-samples:].mean()))


def no_worse_than_usual(usual: Usual, samples: int, *, guess: float | None) -> Asked | None:
    """The same where the weights before have told too few losses: as what was usual says, by which they were judged."""
    rows = round(float(usual.losses.counts.sum())) - 1  # without the one that is imagined
    if rows < _TIMES_AS_MANY * samples:
        return None
    losses = usual.losses.spread(min(rows, COMPARED_ROWS))
    return _plainly_worse(losses, samples, _Inflated(usual.inflation, len(losses)), guess)


class _Inflated(NamedTuple):
    """How many times the variance of independent losses a mean has, and how many losses told that."""

    times: float
    rows: int


def _plainly_worse(
    losses: NDArray[np.float64],
    samples: int,
    inflated: _Inflated,
    guess: float | None,
    beside: NDArray[np.float64] | None = None,
) -> Asked | None:
    most = min(max(_FARTHEST * float(losses.max()), guess or 0.0), LOSS_CAP)  # those before are clipped there, too
    variance = float(losses.var())
    if beside is not None:
        other = float(np.minimum(beside, most).var())
        variance = max(variance, (len(losses) * variance + len(beside) * other) / (len(losses) + len(beside)))
    error = math.sqrt(variance * inflated.times * (1 / len(losses) + 1 / samples))
    unsure = max(inflated.times / inflated.rows, 1 / len(losses))
    widened = WORSE_BY * (1 + _UNSURE * math.sqrt(unsure))
    worse, before = max(widened * error, PLAIN_SHARE * (guess or 0.0)), float(losses.mean())
    if worse <= 0:
        return None
    return Asked(before, before + worse / (1 - REPAIRED_SHARE), most=most, lately=before, quarter=samples // QUARTERS)


def with_losses(one: Asked, seen: Labelled, clip: float | None) -> Asked:
    """After further labelled samples of the new weights."""
    losses = clip_losses(np.asarray(seen.losses, np.float64), clip if one.most is None else one.most)
    parts = one.parts
    if one.quarter:
        places = np.minimum((one.samples + np.arange(len(losses))) // one.quarter, QUARTERS - 1)
        sums = np.bincount(places, losses, QUARTERS) + (np.array(parts) if parts else 0.0)
        parts = tuple(sums.tolist())
    return one._replace(samples=one.samples + len(losses), losses=one.losses + float(losses.sum()), parts=parts)


def unanswered(one: Asked, finding: Finding) -> Finding | None:
    """The finding of a drift that the new weights have not repaired by ``REPAIRED_SHARE``; None: they have.

    Args:
        one: with the losses of all that was waited for.
        finding: of the latest batch, by the labelled monitor, which takes the level of the new weights for usual.
    """
    now, allowed = one.losses / one.samples, (one.drifted - one.before) * (1 - REPAIRED_SHARE)
    if now - one.before <= allowed or not _lasting(one, allowed):
        return None
    return finding._replace(
        statistic=now - one.before,
        threshold=allowed,
        warning_threshold=allowed,
        began_samples=one.samples,
        shift="loss" if one.most is None else "activation",
        attributions=(Attribution(LOSS, one.before, now),),
    )


def _lasting(one: Asked, allowed: float) -> bool:
    """Whether the losses are worse throughout, also than the last ones before; not asked of an answer to a flag."""
    least = one.better_half
    if least is None or one.lately is None:
        return True
    return least - max(one.before, one.lately) > LASTING_SHARE * allowed
