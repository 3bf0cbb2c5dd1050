"""What the losses of their first labelled samples say of new weights.

Whether they have answered the flag that stood; and, where none did, whether they are worse than those before.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.policy.severity import LOSS
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.rises import clip_losses
from edge_agent.wire.messages import FlagEvent

REPAIRED_SHARE = 0.5
RENEWED_AT_MOST = 2
"""In a row: what two answers did not repair, a third will not, and each costs the fleet an adaptation."""

COMPARED_ROWS = 1024
"""Labelled samples of the weights before that new ones are compared with, at most."""
WORSE_BY = 3.72
"""Standard errors: a normal mean exceeds them in 1e-4 of cases."""
_UNSURE = 5.0
"""Over the root of the independent losses before: by how much of itself that is widened, since losses are skewed, and
how far they depend on each other is read from these few."""
PLAIN_SHARE = 0.05
"""Of a guess's loss: what is less is not plainly worse, however sure it is."""
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
    """

    before: float
    drifted: float
    samples: int = 0
    losses: float = 0.0
    most: float | None = None


def asked(flag: str | None, waiting: Asked | None) -> Asked | None:
    """What an activation has to answer; None: nothing that losses told.

    Args:
        flag: the one that stands, as JSON.
        waiting: what the activation before has not answered yet.
    """
    if flag is None:
        return None if waiting is None else waiting._replace(samples=0, losses=0.0)
    told = next((one for one in FlagEvent.model_validate_json(flag).attributions if one.name == LOSS), None)
    return Asked(told.before, told.now) if told is not None and told.now > told.before else None


def no_worse_than(losses: NDArray[Any], samples: int, *, guess: float | None) -> Asked | None:
    """What an activation that answers no flag must not do: make the losses plainly worse than they were.

    Args:
        losses: (n,) of labelled samples by the weights before, in the order in which they were judged.
        samples: labelled ones of the new weights after which it is told.
        guess: a guess's loss; None: not known.

    Returns:
        None where there are fewer losses than twice ``samples``, or they say nothing.

    Source: one-sided two-sample z-test of means, the variance that of the losses before, times what their
        autocorrelation adds.
    Cost: O(n log n).
    """
    finite = clip_losses(np.asarray(losses, np.float64), None)
    if len(finite) < _TIMES_AS_MANY * samples:
        return None
    most = max(_FARTHEST * float(finite.max()), guess or 0.0)
    inflation = dependence(finite).inflation
    error = float(finite.std()) * math.sqrt(inflation * (1 / len(finite) + 1 / samples))
    widened = WORSE_BY * (1 + _UNSURE * math.sqrt(inflation / len(finite)))
    worse = max(widened * error, PLAIN_SHARE * (guess or 0.0))
    before = float(finite.mean())
    return Asked(before, before + worse / (1 - REPAIRED_SHARE), most=most) if worse > 0 else None


def with_losses(one: Asked, seen: Labelled, clip: float | None) -> Asked:
    """After further labelled samples of the new weights."""
    losses = clip_losses(np.asarray(seen.losses, np.float64), clip if one.most is None else one.most)
    return one._replace(samples=one.samples + len(losses), losses=one.losses + float(losses.sum()))


def unanswered(one: Asked, finding: Finding) -> Finding | None:
    """The finding of a drift that the new weights have not repaired by ``REPAIRED_SHARE``; None: they have.

    Args:
        one: with the losses of all that was waited for.
        finding: of the latest batch, by the labelled monitor, which takes the level of the new weights for usual.
    """
    now, allowed = one.losses / one.samples, (one.drifted - one.before) * (1 - REPAIRED_SHARE)
    if now - one.before <= allowed:
        return None
    return replace(
        finding,
        statistic=now - one.before,
        threshold=allowed,
        warning_threshold=allowed,
        began_samples=one.samples,
        shift="loss" if one.most is None else "activation",
        attributions=(Attribution(LOSS, one.before, now),),
    )
