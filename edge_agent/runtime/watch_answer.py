"""Whether new weights have answered the flag that stood: told by the losses of their first labelled samples."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.policy.severity import LOSS
from edge_agent.drift.rises import clip_losses
from edge_agent.wire.messages import FlagEvent

REPAIRED_SHARE = 0.5
RENEWED_AT_MOST = 2
"""In a row: what two answers did not repair, a third will not, and each costs the fleet an adaptation."""


class Asked(NamedTuple):
    """A flag that an activation was to answer.

    Attributes:
        before: mean loss before the drift.
        drifted: mean loss when it was flagged.
        samples: labelled ones of the new weights so far.
        losses: their sum.
    """

    before: float
    drifted: float
    samples: int = 0
    losses: float = 0.0


def asked(flag: str | None, waiting: Asked | None) -> Asked | None:
    """What an activation has to answer; None: nothing that losses told.

    Args:
        flag: the one that stands, as JSON.
        waiting: what the activation before has not answered yet.
    """
    if flag is None:
        return None if waiting is None else Asked(waiting.before, waiting.drifted)
    told = next((one for one in FlagEvent.model_validate_json(flag).attributions if one.name == LOSS), None)
    return Asked(told.before, told.now) if told is not None and told.now > told.before else None


def with_losses(one: Asked, seen: Labelled, clip: float | None) -> Asked:
    """After further labelled samples of the new weights."""
    losses = clip_losses(np.asarray(seen.losses, np.float64), clip)
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
        shift="loss",
        attributions=(Attribution(LOSS, one.before, now),),
    )
