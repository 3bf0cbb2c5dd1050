"""What the labels that come say of themselves, kept up to date beside the monitors."""

import math
from dataclasses import replace

import numpy as np

from edge_agent.drift.arrivals import (
    ArrivalsParams,
    ArrivalsState,
    note_labelled,
    note_labelled_at,
    note_outputs,
)
from edge_agent.drift.labelling import LabelEvidence, label_evidence
from edge_agent.drift.observed import Observed
from edge_agent.drift.policy.catalogue import ARRIVALS
from edge_agent.drift.policy.labels import LabelFacts
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import Standing
from edge_agent.samples.record import LabelledRow

LOOKS_A_PERIOD = 4
"""The evidence takes milliseconds: it is looked at so often in each period of serving."""


def served_noted(rules: WatchRules, at: Standing, piece: Observed, now_s: float | None) -> Standing:
    """After samples were served at a running time; None: nobody knows when."""
    if rules.arrivals is None or now_s is None or not len(piece):
        return at
    params, state = _of(rules, at)
    return _with(at, note_outputs(params, state, piece.ids, np.full(len(piece), now_s), piece.outputs))


def labels_noted(rules: WatchRules, at: Standing, rows: list[LabelledRow], now_s: float | None) -> Standing:
    """After labels came at a running time; None: long ago, nobody knows when."""
    if rules.arrivals is None or not rows:
        return at
    params, state = _of(rules, at)
    ids = [row.id for row in rows]
    if now_s is None:
        return _with(at, note_labelled(params, state, ids, np.full(len(ids), np.nan)))
    return _with(at, note_labelled_at(params, state, ids, now_s))


def looked_at(rules: WatchRules, at: Standing, now_s: float | None, last_s: float) -> tuple[Standing, float]:
    """The facts of the labels as of now, if it is time to look again; and when they were looked at last."""
    if rules.arrivals is None or now_s is None:
        return at, last_s
    params, state = _of(rules, at)
    if now_s - last_s < params.period_s / LOOKS_A_PERIOD:
        return at, last_s
    return replace(at, facts=_facts(at.facts, label_evidence(params, state, now_s))), now_s


def _facts(before: LabelFacts, evidence: LabelEvidence) -> LabelFacts:
    """Bias counts where the labelled samples cannot be weighed to look like the others."""
    median, p90 = (value if math.isfinite(value) else None for value in evidence.delays_s[1:3])
    return replace(
        before,
        served=evidence.drawn,
        labelled=evidence.labelled,
        delay_median_s=median,
        delay_p90_s=p90,
        bias=evidence.leaning if evidence.biased else "",
    )


def _of(rules: WatchRules, at: Standing) -> tuple[ArrivalsParams, ArrivalsState]:
    state = at.states[ARRIVALS]
    if rules.arrivals is None or not isinstance(state, ArrivalsState):
        raise TypeError(f"the state of {ARRIVALS} is a {type(state).__name__}")
    params: ArrivalsParams = rules.arrivals.monitor.params
    return params, state


def _with(at: Standing, state: ArrivalsState) -> Standing:
    """It is written with the next batch that is judged, not by itself."""
    return replace(at, states={**at.states, ARRIVALS: state})
