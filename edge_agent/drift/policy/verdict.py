"""One verdict from all monitors' findings: hysteresis, cool-down, and who may flag."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Self

from edge_agent.drift.finding import Finding
from edge_agent.drift.policy.table import TABLE, Event, Verdict
from edge_agent.errors import DataError

LabelFree = Literal["always", "unlabelled", "never"]
_NONE, _WARNING, _ALARM = Verdict.NONE, Verdict.WARNING, Verdict.ALARM
_CLEAR, _WARN = Event.CLEAR, Event.WARN
"""By name: to look an enumeration's member up in its class takes as long as the rest of a batch's judgement."""


class Labels(StrEnum):
    """What the labels that come are good for (:func:`edge_agent.drift.policy.labels.standing`)."""

    DECIDE = "decide"
    """They come often and soon enough for the loss to say whether the model is fine."""
    SCARCE = "scarce"
    """Too few or too late: an alarm of the loss counts, its silence does not."""
    BIASED = "biased"
    """Chosen samples are labelled: neither counts."""


class Role(StrEnum):
    """What a monitor is to the verdict."""

    LABELLED = "labelled"
    """Judges losses: its alarm flags, unless labelling is biased."""
    LABEL_FREE = "label-free"
    """Judges inputs and outputs: its alarm flags where no labels can say that the loss is fine."""
    ACCURACY = "accuracy"
    """Estimates: it warns, and says how bad it is."""


@dataclass(frozen=True)
class PolicyParams:
    """The policy's constants.

    Args:
        calm_batches: batches in a row below its warning threshold after which a monitor no longer warns or alarms,
            by the monitor itself, >= 1.
        cooldown_batches: after a verdict of alarm has ended without an activation no flag is raised for so many
            batches, by whichever monitor, >= 0; an alarm that lasts beyond is flagged then.
        label_free: whose alarm flags: ``unlabelled``: the label-free monitor's where labels do not decide.
        label_rows: served samples without a judged batch of labelled ones after which labels no longer decide.
        label_delay_s: labels that come later than this do not say how the model does now.
    """

    calm_batches: int = 8
    cooldown_batches: int = 8
    label_free: LabelFree = "unlabelled"
    label_rows: int = 2000
    label_delay_s: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse constants outside their range, by name."""
        checks = {
            "calm_batches": self.calm_batches >= 1,
            "cooldown_batches": self.cooldown_batches >= 0,
            "label_rows": self.label_rows >= 1,
            "label_delay_s": self.label_delay_s > 0,
        }
        for name, right in checks.items():
            if not right:
                raise DataError(f"drift policy: {name} = {getattr(self, name)} is out of range")


@dataclass(frozen=True)
class Held:
    """A monitor's level with hysteresis: what it was at, until it has been quiet for long enough.

    Args:
        level: none, warning or alarm.
        quiet: batches in a row below the warning threshold.
    """

    level: Verdict = Verdict.NONE
    quiet: int = 0

    def after(self, raw: Verdict, calm_batches: int) -> "Held":
        """The level after a batch."""
        if raw is _NONE:
            quiet = self.quiet + 1
            return Held() if quiet >= calm_batches else Held(self.level, quiet)
        return Held(_ALARM if raw is _ALARM or self.level is _ALARM else _WARNING, 0)


@dataclass(frozen=True)
class PolicyState:
    """What the policy remembers.

    Args:
        verdict: of the gateway.
        held: level and quiet run by role; a role that is absent has not judged since the last activation.
        cooling: batches left without a flag.
        flags: raised so far, over all weights.
    """

    verdict: Verdict = Verdict.NONE
    held: dict[Role, Held] = field(default_factory=dict)
    cooling: int = 0
    flags: int = 0

    def level(self, role: Role) -> Verdict:
        """A role's level with hysteresis."""
        return self.held.get(role, Held()).level

    def to_document(self) -> dict[str, Any]:
        """As JSON values."""
        held = {str(role): [str(one.level), one.quiet] for role, one in sorted(self.held.items())}
        return {"verdict": str(self.verdict), "held": held, "cooling": self.cooling, "flags": self.flags}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The state that :meth:`to_document` wrote.

        Raises:
            DataError: it is no such state.
        """
        try:
            held = {Role(role): Held(Verdict(level), int(quiet)) for role, (level, quiet) in document["held"].items()}
            return cls(Verdict(document["verdict"]), held, int(document["cooling"]), int(document["flags"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"the stored state of the drift policy cannot be read ({error})") from None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the policy makes of one batch.

    Args:
        verdict: from now on.
        event: what the batch meant.
        flags: whether a flag is raised now.
    """

    verdict: Verdict
    event: Event
    flags: bool


def level_of(finding: Finding) -> Verdict:
    """A batch's level without hysteresis."""
    if finding.alarm:
        return _ALARM
    return _WARNING if finding.warning else _NONE


def judge(
    params: PolicyParams, state: PolicyState, role: Role, finding: Finding, *, labels: Labels
) -> tuple[PolicyState, Ruling]:
    """Take one monitor's judgement of one batch.

    Args:
        params: the policy's constants.
        state: what came before; not changed.
        role: of the monitor.
        finding: its judgement.
        labels: what they are good for now.

    Returns:
        The next state, and the ruling.

    Cost: O(1).
    """
    raw = level_of(finding)
    held = {**state.held, role: state.held.get(role, Held()).after(raw, params.calm_batches)}
    cooling = max(0, state.cooling - 1)
    event = _event(params, held, role, raw, barred=state.cooling > 0, labels=labels)
    move = TABLE[state.verdict, event]
    if state.verdict is _ALARM and move.to is not _ALARM:
        cooling = params.cooldown_batches
    following = PolicyState(move.to, held, cooling, state.flags + move.flags)
    return following, Ruling(move.to, event, move.flags)


def activated(state: PolicyState) -> PolicyState:
    """The state after an activation: nothing is held, nothing cools; the monitors' own warm-ups follow."""
    return replace(state, verdict=TABLE[state.verdict, Event.ACTIVATED].to, held={}, cooling=0)


def may_flag(params: PolicyParams, role: Role, *, labels: Labels) -> bool:
    """Whether an alarm of this role raises a flag; else it is a warning."""
    if role is Role.LABEL_FREE:
        return params.label_free == "always" or (params.label_free == "unlabelled" and labels is not Labels.DECIDE)
    return role is Role.LABELLED and labels is not Labels.BIASED


def _event(
    params: PolicyParams, held: dict[Role, Held], role: Role, raw: Verdict, *, barred: bool, labels: Labels
) -> Event:
    if raw is _ALARM and may_flag(params, role, labels=labels):
        return Event.BARRED if barred else Event.ALARM
    event = _CLEAR
    for other, one in held.items():
        if one.level is _NONE:
            continue
        if one.level is _ALARM and may_flag(params, other, labels=labels):
            return Event.HELD
        event = _WARN
    return event
