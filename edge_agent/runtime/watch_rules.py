"""Which monitors watch a bundle on this gateway, and by which policy."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import structlog

from edge_agent.config import MonitorSection
from edge_agent.drift.arrays import MonitorArrays, encode_drift_arrays
from edge_agent.drift.loss_rise import MONITOR_NAME as LOSS_RISE
from edge_agent.drift.loss_rise import LossRiseParams, published
from edge_agent.drift.observed import Columns
from edge_agent.drift.policy.catalogue import (
    ACCURACY,
    ARRIVALS,
    KINDS,
    LABEL_FREE,
    LOSS_LEVEL,
    Monitor,
    MonitorState,
    monitor,
    of_rule,
)
from edge_agent.drift.policy.season import DAY_OF_WEEK, EPOCH_DAY_OFFSET_S, HOUR_OF_DAY, SeasonParams
from edge_agent.drift.policy.verdict import PolicyParams, Role
from edge_agent.drift.promise.tolerable import cries_wolf, is_unproven
from edge_agent.drift.task_answers import TaskAnswers
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.errors import ConfigError
from edge_agent.model.bundle import Bundle
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.manifest import Manifest, MonitorSpec

DEFAULT_ORDER = (LOSS_LEVEL, LOSS_RISE)
"""Of the labelled monitors that a bundle has, the first decides where the settings name none."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Watched:
    """A monitor at work.

    Attributes:
        rule: names its constants: a state made with others is not gone on with.
    """

    monitor: Monitor
    rule: str


@dataclass(frozen=True)
class WatchRules:
    """What watches a bundle.

    Attributes:
        bundle: its digest.
        labelled: the monitor that judges losses.
        served: those that judge samples as they are served.
        arrivals: what is known of the labels; None: the bundle has no such part.
        unproven: whether the reference was too short for the label-free monitor to flag.
        learns: whether what is normal is learnt from the first batches on a gateway, not taken from the bundle.
        answers: how usual the answers of each of the bundle's tasks are; None: it has no tasks, or not this.
    """

    bundle: str
    manifest: Manifest
    labelled: Watched
    served: tuple[Watched, ...] = ()
    policy: PolicyParams = field(default_factory=PolicyParams)
    season: SeasonParams | None = None
    arrivals: Watched | None = None
    unproven: bool = False
    learns: bool = False
    answers: TaskAnswers | None = None

    @property
    def monitors(self) -> tuple[Monitor, ...]:
        """All that judge drift."""
        return (self.labelled.monitor, *(one.monitor for one in self.served))

    @property
    def every(self) -> tuple[Watched, ...]:
        """All that has a state."""
        return (self.labelled, *self.served, *(() if self.arrivals is None else (self.arrivals,)))

    @cached_property
    def narrow(self) -> Mapping[str, tuple[Columns, Monitor]]:
        """Of those that judge samples as they are served, by name: which columns of the features they look at, and what
        judges samples that have these alone. Empty where one looks at all of them, or together they look at as many."""
        count = sum(math.prod(size for size in one.shape[1:] if isinstance(size, int)) for one in self.manifest.inputs)
        found = {one.monitor.name: one.monitor.narrowed(count) for one in self.served}
        chosen = sum(len(np.arange(count)[one]) for columns, _ in found.values() for one in columns)
        return found if all(columns for columns, _ in found.values()) and chosen < count else {}

    @property
    def inputs_alone(self) -> bool:
        """Whether the bundle has several tasks and its monitors without labels judge inputs, so those of all tasks."""
        if len(self.manifest.tasks) < 2 or not self.served or self.arrivals is not None:
            return False
        params = [one.monitor.params for one in self.served]
        return all(isinstance(one, LabelFreeParams) and one.judges_inputs_alone for one in params)

    @property
    def own_weights(self) -> str:
        """The digest of the weights that the bundle came with."""
        return self.manifest.files.get("weights.safetensors", "")

    def rebaselined(self, one: Watched, state: MonitorState, weights: str) -> MonitorState:
        """A monitor's state once these weights serve; what knows the mistakes of the bundle's own weights knows them
        again where those do."""
        if one.monitor.name == ACCURACY and weights == self.own_weights:
            return one.monitor.start()
        return one.monitor.rebaseline(state)

    @property
    def worst_loss(self) -> float | None:
        """A guess's loss a sample: ln of the classes; of a regression the rule's clip, if it has one."""
        if self.manifest.classes is not None:
            return math.log(self.manifest.classes)
        clip = getattr(self.labelled.monitor.params, "clip", None)
        return clip if isinstance(clip, float) else None


def watch_rules(section: MonitorSection, bundle: Bundle) -> WatchRules:
    """What the settings make of a bundle's monitors.

    Raises:
        ConfigError: the bundle lacks the monitor that the settings ask for, or has none with labels.
        DataError: a monitor's constants make no sense.
    """
    manifest = bundle.manifest
    arrays = bundle.drift_arrays()
    labelled = _labelled(section, manifest, arrays)
    served = () if section.label_free == "off" else tuple(_served(manifest, arrays))
    return WatchRules(
        bundle.digest,
        manifest,
        labelled,
        served,
        _policy(section, labelled.monitor, manifest),
        season_of(section),
        arrivals=_part(ARRIVALS, manifest, arrays),
        unproven=is_unproven(manifest.monitors.get(LABEL_FREE)),
        learns=section.baseline == "gateway",
        answers=None if not served else _answers(manifest, arrays),
    )


def rules_of_release(section: MonitorSection, bundle: Bundle) -> WatchRules:
    """The same of a bundle that came over the air: one without the monitor that the settings ask for is watched by its
    default, so that no release ends an agent.

    Raises:
        ConfigError: it has no monitor with labels.
        DataError: a monitor's constants make no sense.
    """
    try:
        return watch_rules(section, bundle)
    except ConfigError as error:
        rules = watch_rules(section.model_copy(update={"rule": "default"}), bundle)
        told = {"asked": section.rule, "watches": rules.labelled.monitor.name}
        _log.error("rule_not_in_released_bundle", problem=error.problem, **told)
        return rules


def rule_alone(params: LossRiseParams, bundle: Bundle, *, policy: PolicyParams | None = None) -> WatchRules:
    """The loss-rise rule with given constants, and nothing else."""
    calm = policy or PolicyParams(calm_batches=max(1, params.rearm_batches), cooldown_batches=0)
    return WatchRules(bundle.digest, bundle.manifest, _rise(params, None), policy=calm)


def season_of(section: MonitorSection) -> SeasonParams | None:
    """The season that the settings name; None: none."""
    if section.season == "none":
        return None
    if section.season == "hour-of-day":
        return SeasonParams(*HOUR_OF_DAY, offset_s=section.season_offset_s)
    if section.season == "day-of-week":
        return SeasonParams(*DAY_OF_WEEK, offset_s=section.season_offset_s + EPOCH_DAY_OFFSET_S)
    return SeasonParams(section.season_period_s, section.season_parts, section.season_offset_s)


def _answers(manifest: Manifest, arrays: MonitorArrays) -> TaskAnswers | None:
    return TaskAnswers.from_arrays(arrays.get(LABEL_FREE, {}), [task.classes for task in manifest.tasks])


def _policy(section: MonitorSection, labelled: Monitor, manifest: Manifest) -> PolicyParams:
    """A rule that resets at once, as the published one, is followed at once.

    A label-free monitor that promises too little only warns, unless told.
    """
    held_back = section.label_free == "unlabelled" and is_unproven(manifest.monitors.get(LABEL_FREE))
    label_free = "never" if held_back else section.label_free
    resets = isinstance(labelled.params, LossRiseParams) and labelled.params.rearm_batches == 0
    return PolicyParams(
        calm_batches=1 if resets else section.calm_batches,
        cooldown_batches=0 if resets else section.cooldown_batches,
        label_free="never" if label_free == "off" else label_free,
        label_rows=section.label_rows,
        label_delay_s=section.label_delay_s,
    )


def _labelled(section: MonitorSection, manifest: Manifest, arrays: MonitorArrays) -> Watched:
    if section.rule == "published":
        return _rise(published(batch_size=_spec(manifest, LOSS_RISE).batch_size, gamma=section.gamma), None)
    named = section.rule if section.rule in (LOSS_RISE, LOSS_LEVEL) else _first(manifest, DEFAULT_ORDER)
    spec = _spec(manifest, named)
    if named == LOSS_RISE:
        return _rise(LossRiseParams.from_spec(spec), spec.false_alarm_rate)
    return _watched(named, spec, arrays)


def _part(name: str, manifest: Manifest, arrays: MonitorArrays) -> Watched | None:
    spec = manifest.monitors.get(name)
    return None if spec is None or name not in KINDS else _watched(name, spec, arrays)


def _served(manifest: Manifest, arrays: MonitorArrays) -> list[Watched]:
    return [
        _watched(name, manifest.monitors[name], arrays)
        for name in (LABEL_FREE, ACCURACY)
        if name in manifest.monitors and name in KINDS
    ]


def _first(manifest: Manifest, names: Sequence[str]) -> str:
    """The first that the bundle has, that is known, and that does not cry wolf; else the last."""
    known = (name for name in names if name in KINDS and name in manifest.monitors)
    return next((name for name in known if not cries_wolf(manifest.monitors[name])), names[-1])


def _spec(manifest: Manifest, name: str) -> MonitorSpec:
    spec = manifest.monitors.get(name)
    if spec is None:
        have = ", ".join(sorted(manifest.monitors)) or "none"
        raise ConfigError(
            f"bundle {manifest.name!r} has no monitor {name!r} (it has {have})",
            "build it with calibration data, or choose another [monitor] rule;"
            " also the published rule takes its batch size from there",
        )
    return spec


def _rise(params: LossRiseParams, rate: float | None) -> Watched:
    return Watched(of_rule(params, rate=rate), json.dumps(asdict(params), sort_keys=True))


def _watched(name: str, spec: MonitorSpec, arrays: MonitorArrays) -> Watched:
    own = {name: arrays[name]} if name in arrays else {}
    constants = spec.model_dump_json(include={"parameters", "batch_size"}).encode() + encode_drift_arrays(own)
    return Watched(monitor(name, spec, arrays), sha256_hex(constants))


__all__ = ["Role", "WatchRules", "Watched", "rule_alone", "rules_of_release", "season_of", "watch_rules"]
