"""What a source yields and what the store gives back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

ID_CHARS = 128
TIME_LIMIT_S = 253_402_300_800.0
"""Seconds from 1970 to the year 10000: what is farther away, before or after, is no time in seconds."""

FeatureArrays = dict[str, NDArray[Any]]

_ID = re.compile(r"[^\x00-\x1f\x7f]{1,128}\Z")
_IDS = re.compile(r"(?:[^\x00-\x1f\x7f]{1,128}(?:\n(?!\Z)|\Z))+\Z")


def is_sample_id(name: str) -> bool:
    """Whether ``name`` may name a sample: 1 to 128 characters, none of them a control character."""
    return _ID.match(name) is not None


def are_sample_ids(names: list[str]) -> bool:
    """Whether every one may name a sample, all looked at in one go."""
    joined = "\n".join(names)
    return not names or (joined.count("\n") == len(names) - 1 and _IDS.match(joined) is not None)


class Part(StrEnum):
    """What a sample may be used for.

    ``unfit``: a feature is not finite, or a sensor broken. It is kept with its label, and nothing learns from it, is
    proved by it or judged by it. A holdout sample stays one unless a sensor is broken.
    """

    TRAIN = "train"
    PROOF = "proof"
    HOLDOUT = "holdout"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        id: 1 to 128 characters, unique for ever.
        time_s: when it was measured, nearer to 1970 than ``TIME_LIMIT_S``.
        features: an array per model input, without the batch dimension.
        group: what must not be parted between training and proof (a recording, a window block).
        holdout: served and scored, never trained on.
        task: which of the bundle's tasks it belongs to; ``None``: the first.
    """

    id: str
    time_s: float
    features: FeatureArrays
    group: str | None = None
    holdout: bool = False
    task: str | None = None


class Label(NamedTuple):
    """The truth about a sample: a class number or a target value; a tuple, since one is made for every label."""

    id: str
    value: float | int


@dataclass(slots=True)  # not frozen: one is made for every read, and a frozen one takes three times as long
class SampleBatch:
    """Samples side by side; not changed once it is handed on.

    Attributes:
        ids, times: n entries each.
        features: (n, ...) per model input; empty where ``portions`` hold them.
        groups, holdouts, tasks: n entries each, or empty where no sample has one.
        faulty: (n, f) bool, readings that are taken for broken, the model's inputs side by side; None: none is.
        portions: features of some samples after the other, where putting them side by side would copy much.
        screened: every reading was looked at: those that are not finite are in ``faulty``.
    """

    ids: list[str]
    times: list[float]
    features: FeatureArrays
    groups: list[str | None] = field(default_factory=list)
    holdouts: list[bool] = field(default_factory=list)
    tasks: list[str | None] = field(default_factory=list)
    faulty: NDArray[np.bool_] | None = None
    portions: Sequence[FeatureArrays] = ()
    screened: bool = False

    @property
    def in_portions(self) -> Sequence[FeatureArrays]:
        """The features as they lie in memory, one portion after the other."""
        return self.portions or (self.features,)

    @property
    def whole(self) -> FeatureArrays:
        """(n, ...) per model input: a copy where they lie in portions."""
        if not self.portions:
            return self.features
        names = self.portions[0]
        return {name: np.concatenate([portion[name] for portion in self.portions]) for name in names}

    def rows(self, start: int, stop: int) -> "SampleBatch":
        """Samples ``start`` to before ``stop`` of a batch in one portion; no reading is taken for broken yet."""
        return SampleBatch(
            self.ids[start:stop],
            self.times[start:stop],
            {name: array[start:stop] for name, array in self.features.items()},
            self.groups[start:stop],
            self.holdouts[start:stop],
            self.tasks[start:stop],
        )

    def without_features(self) -> "SampleBatch":
        """The same samples, with neither features nor what is said of them."""
        return SampleBatch(self.ids, self.times, {}, self.groups, self.holdouts, self.tasks)

    @classmethod
    def of(cls, samples: list[Sample]) -> "SampleBatch":
        """Stack samples whose features are of the same names and shapes; at least one."""
        names = samples[0].features
        return cls(
            ids=[sample.id for sample in samples],
            times=[sample.time_s for sample in samples],
            features={name: np.stack([sample.features[name] for sample in samples]) for name in names},
            groups=[sample.group for sample in samples],
            holdouts=[sample.holdout for sample in samples],
            tasks=[sample.task for sample in samples],
        )


class Predicted(Protocol):
    """A batch's predictions and what made them; ``serving.Served`` is one."""

    @property
    def outputs(self) -> NDArray[np.float32]:
        """(n, ...) the primary output."""

    @property
    def bundle(self) -> str:
        """Digest of the bundle that served."""

    @property
    def weights(self) -> str:
        """Digest of the weights that served."""

    @property
    def version(self) -> int:
        """Their version."""

    @property
    def cohort(self) -> str:
        """Their cohort."""


class LabelledRow(NamedTuple):
    """A sample that has its label; a tuple, since one is made for every label.

    Attributes:
        arrival: rises by one with every label joined, and is never used twice.
        output: (k,) float32, the primary output as it was served.
        label: class number (int) or target value (float).
        bundle, weights, version, cohort: what served it.
        task: whose output it is, where it was named.
    """

    arrival: int
    id: str
    time_s: float
    part: Part
    output: NDArray[np.float32]
    label: float | int
    bundle: str
    weights: str
    version: int
    cohort: str
    task: str | None = None


@dataclass(frozen=True, slots=True)
class SampleSet:
    """Labelled samples to train or evaluate on, oldest first.

    Attributes:
        features: (n, ...) per model input.
        labels: (n,) int64 class numbers or float64 targets.
        part: where they come from.
        tasks: n entries: the task of each, where it was named.
        rehearsed: so many of the first are from the reservoir.
    """

    features: FeatureArrays
    labels: NDArray[Any]
    ids: list[str]
    part: Part
    tasks: list[str | None] = field(default_factory=list)
    rehearsed: int = 0


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Samples of the train part without their labels, oldest first.

    Attributes:
        features: (n, ...) per model input.
    """

    features: FeatureArrays
    ids: list[str]


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """What the store holds, and what it has dropped or refused so far.

    Attributes:
        reservoir, unlabelled: of the samples, those older than the recent ones.
        expired_samples: those whose label did not come in time.
        spoilt_samples: those dropped because what the disk gave back was not what had been written.
    """

    samples: int
    pending: int
    labelled: int
    reservoir: int
    unlabelled: int
    early_labels: int
    duplicate_samples: int
    repeated_labels: int
    refused_labels: int
    unmatched_labels: int
    expired_samples: int
    evicted_samples: int
    spoilt_samples: int = 0
