"""Whether new weights have answered what they were asked at their activation, by the labelled monitor's batches."""

from dataclasses import replace

import numpy as np
import structlog

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.sequential.params import LossLevelParams
from edge_agent.drift.sequential.state import LossLevelState
from edge_agent.errors import DataError
from edge_agent.runtime.watch_answer import (
    COMPARED_ROWS,
    RENEWED_AT_MOST,
    Asked,
    Usual,
    no_worse_than,
    no_worse_than_usual,
    unanswered,
    with_losses,
)
from edge_agent.runtime.watch_losses import latest_labelled, losses_of
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import Standing
from edge_agent.samples.record import Part
from edge_agent.samples.store import SampleStore

_log = structlog.get_logger(__name__)


def answered(rules: WatchRules, at: Standing, shown: Labelled, finding: Finding) -> tuple[Standing, Finding]:
    """Whether the weights have answered the flag that stood at their activation, once that can be told.

    Their level is what is usual from now on, so that a drift which they have not repaired would not be seen again,
    nor, where no flag stood, that they are worse than those before.

    Args:
        at: the standing once this batch is judged.
        shown: the batch.
        finding: of it.
    """
    waiting, warm_up = at.place.asked, warm_up_samples(rules)
    if waiting is None or not warm_up:  # the published rule has none, and flags what it says alone
        return at, finding
    waiting = with_losses(waiting, shown, getattr(rules.labelled.monitor.params, "clip", None))
    if waiting.samples < warm_up:
        return replace(at, place=replace(at.place, asked=waiting)), finding
    still = unanswered(waiting, finding)
    renewed = 0 if still is None else at.place.renewed + 1
    at = replace(at, place=replace(at.place, asked=None, renewed=renewed))
    return at, finding if still is None or renewed > RENEWED_AT_MOST else still


def before_activation(rules: WatchRules, store: SampleStore, at: Standing) -> Asked | None:
    """What new weights are to be compared with that answer no flag; None: too little is known to compare.

    The latest losses by the weights before; of weights that have told too few, those usual to the monitor then:
    a gateway that has just started, and gets its fleet's release at once, would never be judged by the reference.
    Where a season is learned anew with the weights nothing is compared.

    Args:
        at: the standing before the activation.

    Cost: reads twice ``COMPARED_ROWS`` labelled rows.
    """
    warm_up = warm_up_samples(rules)
    if not at.place.weights or not warm_up or rules.season is not None:
        return None
    rows = [row for row in latest_labelled(store, at.place, COMPARED_ROWS) if row.part is not Part.UNFIT]
    try:
        losses = losses_of(rules, rows) if rows else np.zeros(0)
    except DataError as error:
        _log.warning("new_weights_not_compared", problem=str(error))
        return None
    guess, usual = rules.worst_loss, _usual(rules, at)
    compared = no_worse_than(losses, warm_up, guess=guess, usual=usual)
    return no_worse_than_usual(usual, warm_up, guess=guess) if compared is None and usual is not None else compared


def _usual(rules: WatchRules, at: Standing) -> Usual | None:
    monitor = rules.labelled.monitor
    state, params = at.states[monitor.name], monitor.params
    if not isinstance(state, LossLevelState) or not isinstance(params, LossLevelParams) or state.warmup_left:
        return None
    rows = round(float(params.distribution.counts.sum())) - 1  # without the one that is imagined
    return Usual(state.distribution, params.inflation, rows)


def warm_up_samples(rules: WatchRules) -> int:
    """Labelled samples that the monitor takes for the level of new weights."""
    monitor = rules.labelled.monitor
    return int(getattr(monitor.params, "warmup_batches", 0)) * monitor.batch_size
