"""The monitors that a bundle names, made ready to step, all in one form."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from numpy.typing import NDArray

from edge_agent.drift.arrays import MonitorArrays
from edge_agent.drift.finding import Finding, Stepped
from edge_agent.drift.loss_rise import MONITOR_NAME as LOSS_RISE
from edge_agent.drift.loss_rise import LossRiseParams
from edge_agent.drift.observed import Columns
from edge_agent.drift.policy.verdict import Role
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

LOSS_LEVEL, LABEL_FREE, ACCURACY = "loss-level", "label-free", "accuracy"
ARRIVALS = "arrivals"
"""No monitor of drift: what is known of the labels."""


class MonitorState(Protocol):
    """A monitor's state: frozen, of a fixed size."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that give it back bit for bit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a monitor's code is; loaded when a bundle names it.

    Attributes:
        role: what it is to the verdict; None: nothing, its ``step`` gives no finding.
        module: has ``step``, ``step_many`` and ``rebaseline``.
        params, state: names of its classes there.
        any_size: whether it judges any number of samples, each as soon as it comes; else whole batches only.
        explains: whether it has a ``judge_many``, since to explain a finding costs much.
    """

    role: Role | None
    module: str
    params: str
    state: str
    any_size: bool = False
    explains: bool = False


KINDS: Mapping[str, Kind] = {
    LOSS_RISE: Kind(Role.LABELLED, "edge_agent.drift.policy.rise", "LossRiseParams", "RiseState"),
    LOSS_LEVEL: Kind(
        Role.LABELLED, "edge_agent.drift.sequential.loss_level", "LossLevelParams", "LossLevelState", any_size=True
    ),
    LABEL_FREE: Kind(
        Role.LABEL_FREE, "edge_agent.drift.unlabelled.monitor", "LabelFreeParams", "LabelFreeState", explains=True
    ),
    ACCURACY: Kind(Role.ACCURACY, "edge_agent.drift.accuracy.monitor", "AccuracyParams", "AccuracyState"),
    ARRIVALS: Kind(None, "edge_agent.drift.arrivals", "ArrivalsParams", "ArrivalsState"),
}
"""Every monitor that this version knows, by its name in manifests."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """One monitor of a bundle with its constants.

    Attributes:
        name: in the manifest.
        rate: promised false alarms a batch; None: nothing is promised.
        params: the monitor's own.
        batch_size: samples a batch.
        any_size: whether any number of samples can be stepped.
        explains: whether its module has a ``judge_many``.
    """

    name: str
    role: Role | None
    rate: float | None
    params: Any
    batch_size: int
    module: Any
    state: Any
    any_size: bool = False
    explains: bool = False

    def narrowed(self, features: int) -> tuple[Columns, "Monitor"]:
        """Of a monitor of samples as they are served: the columns of their features that it looks at, where these are
        not all; and the monitor that judges samples of which there are no others, with the same states.

        Args:
            features: of a sample.
        """
        columns, params = self.params.narrowed(features)
        return columns, replace(self, params=params)

    def start(self) -> MonitorState:
        """Nothing seen yet."""
        started: MonitorState = self.state.start(self.params)
        return started

    def step(self, state: MonitorState, batch: Any) -> tuple[MonitorState, Finding]:
        """Judge exactly ``batch_size`` samples, or any number with ``any_size``.

        Args:
            state: not changed.
            batch: ``Labelled`` for a labelled monitor, else ``Observed``.

        Raises:
            DataError: the batch cannot be judged.
        """
        stepped: tuple[MonitorState, Finding] = self.module.step(self.params, state, batch)
        return stepped

    def step_many(self, state: MonitorState, seen: Any) -> tuple[MonitorState, list[Finding]]:
        """Judge whole batches, as :meth:`step` one after the other; the state after the last, and each one's finding.

        Raises:
            DataError: one cannot be judged; nothing is judged then.
        """
        stepped: tuple[MonitorState, list[Finding]] = self.module.step_many(self.params, state, seen)
        return stepped

    def judge_many(self, state: MonitorState, seen: Any) -> Stepped:
        """As :meth:`step_many`; a finding is explained when it is asked for, which costs less where few are.

        Raises:
            DataError: as :meth:`step_many`.
        """
        if self.explains:
            judged: Stepped = self.module.judge_many(self.params, state, seen)
            return judged
        following, findings = self.step_many(state, seen)
        return Stepped(following, findings, findings.__getitem__)

    def rebaseline(self, state: MonitorState) -> MonitorState:
        """The state after an activation."""
        following: MonitorState = self.module.rebaseline(self.params, state)
        return following

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> MonitorState:
        """The state that ``to_arrays`` gave.

        Raises:
            DataError: the arrays are of another monitor, or other constants.
        """
        state: MonitorState = self.state.from_arrays(self.params, arrays)
        return state


def monitor(name: str, spec: MonitorSpec, arrays: MonitorArrays) -> Monitor:
    """A monitor as the bundle's manifest and ``drift.safetensors`` describe it.

    Raises:
        DataError: this version does not know it, or its constants make no sense.
    """
    kind = KINDS.get(name)
    if kind is None:
        raise DataError(f"monitor {name!r} is not known", "a newer agent may know it")
    module = import_module(kind.module)
    if name == LOSS_RISE:
        return of_rule(LossRiseParams.from_spec(spec), rate=spec.false_alarm_rate)
    params = getattr(module, kind.params).from_spec(spec, arrays.get(name, {}))
    state = getattr(module, kind.state)
    return Monitor(
        name,
        kind.role,
        promised_rate(spec),
        params,
        spec.batch_size,
        module,
        state,
        any_size=kind.any_size,
        explains=kind.explains,
    )


def promised_rate(spec: MonitorSpec) -> float:
    """False alarms a batch that a monitor promises: a threshold may aim at fewer than its reference supports."""
    return spec.false_alarm_rate if spec.promise is None else max(spec.false_alarm_rate, spec.promise.lowest_rate)


def of_rule(params: LossRiseParams, *, rate: float | None = None) -> Monitor:
    """The loss-rise rule with given constants, the published one for example."""
    from edge_agent.drift.policy import rise

    return Monitor(LOSS_RISE, Role.LABELLED, rate, params, params.batch_size, rise, rise.RiseState)
