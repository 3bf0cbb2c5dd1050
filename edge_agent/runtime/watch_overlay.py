"""What an overlay means to the monitors (ADR 0018): they go on judging the gateway by its release.

- *Losses.* A labelled monitor goes on, evidence and level as they were: an overlay is to serve as well as the release
  did, and where it does not, that is an alarm, and the flag names the overlay. Rows of the release and of every overlay
  on it count, whenever their labels come, but for overlays that labels have shown to be worse than the release.
- *Without labels.* What is judged of inputs goes on, evidence included: no weights move them. What is judged of outputs
  and embeddings learns its level anew, as after an activation; until then inputs alone are judged. Another overlay is
  not laid before as many batches again were judged in full, so that at most half of the batches are judged by inputs
  alone, whatever the limit on swaps an hour.
- *Verdict and flags* stay: what is held, what cools, the open flag and where it began.
- *Estimated accuracy* is that of the bundle's own weights; while an overlay serves there is none.
"""

from dataclasses import replace

from edge_agent.drift.policy.catalogue import ACCURACY, LABEL_FREE, Monitor, MonitorState
from edge_agent.drift.policy.verdict import Held, Role
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import Place, Standing
from edge_agent.serving.server import Prepared

OVERLAYS_REMEMBERED = 256
"""Overlays on a release whose late labels are still judged: at twelve an hour those of a day."""
JUDGED_IN_FULL = 2
"""Times the batches of a warm-up that lie between two overlays: one warm-up, and as much that is judged in full."""


def serves_as(place: Place, active: Prepared) -> bool:
    """Whether the standing is about what predicts now."""
    return place.weights == active.weights and place.overlay == overlay_of(active)


def overlay_of(active: Prepared) -> str:
    """The digest of the overlay; "": none."""
    return "" if active.overlay is None else active.overlay.digest


def own_weights_serve(rules: WatchRules, active: Prepared) -> bool:
    """Whether the bundle's own weights predict, whose mistakes its reference knows."""
    return active.overlay is None and active.weights == rules.own_weights


def with_overlay(rules: WatchRules, at: Standing, active: Prepared) -> Standing:
    """The standing once another overlay lies on the same release, or none."""
    laid = overlay_of(active)
    known = [digest for digest in at.place.overlays if digest not in active.disowned and digest != laid]
    place = replace(
        at.place,
        overlay=laid,
        overlays=(*known, *([laid] if laid else []))[-OVERLAYS_REMEMBERED:],
        overlaid_at=at.batches.get(LABEL_FREE, 0),
    )
    states = dict(at.states)
    for one in rules.served:
        if one.monitor.role is Role.LABEL_FREE:
            states[one.monitor.name] = _inputs_go_on(one.monitor, states[one.monitor.name])
    findings = {name: finding for name, finding in at.findings.items() if name != ACCURACY}
    held: dict[Role, Held] = {role: level for role, level in at.policy.held.items() if role is not Role.ACCURACY}
    return replace(
        at,
        place=place,
        states=states,
        findings=findings,
        policy=replace(at.policy, held=held),
        touched=at.touched | {one.monitor.name for one in rules.served},
    )


def may_swap(rules: WatchRules, at: Standing) -> bool:
    """Whether enough was judged in full since the last change for another overlay to be laid."""
    for one in rules.served:
        if one.monitor.role is Role.LABEL_FREE:
            judged = at.batches.get(one.monitor.name, 0) - at.place.overlaid_at
            return bool(judged >= JUDGED_IN_FULL * one.monitor.params.learning_batches)
    return True


def _inputs_go_on(monitor: Monitor, state: MonitorState) -> MonitorState:
    """As after an activation, but that inputs that moved are no new normal: no release has answered them."""
    from edge_agent.drift.unlabelled.monitor import LabelFreeState  # loaded where a bundle has such a monitor

    if not isinstance(state, LabelFreeState):
        raise TypeError(f"the state of {monitor.name} is a {type(state).__name__}")
    learnt = monitor.rebaseline(replace(state, inputs_alarmed=False))
    return replace(learnt, inputs_alarmed=state.inputs_alarmed) if isinstance(learnt, LabelFreeState) else learnt
