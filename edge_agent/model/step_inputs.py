"""What a training graph is fed beside samples: parameters, states, scalars and class vectors, in memory of ours."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.head import fed_inputs
from edge_agent.model.session import Session
from edge_agent.wire.manifest import Manifest, TrainingGraphSpec
from edge_agent.wire.scalars import LEARNING_RATE, OF_THE_STEP, STEP, unfit_rate, unfit_scalar
from edge_agent.wire.tensors import Weights

LOSS = "loss"
BASE, PACKED = "base", "packed"
BOUNDS = ("clip_norm", "update_norm_cap")
"""Scalars that bound a step; 0: not."""
Buffers = dict[str, NDArray[np.float32]]


class Scalars:
    """The scalars of a training graph, each in a buffer that a session reads.

    Args:
        spec: of the graph.

    Raises:
        DataError: it needs a scalar that has no default and is unknown here, or a default is out of range.
    """

    def __init__(self, spec: TrainingGraphSpec) -> None:
        unknown = set(spec.scalars) - {*OF_THE_STEP, *spec.defaults}
        if unknown:
            raise DataError(f"{spec.file} needs scalar {min(unknown)!r}, unknown to this agent")
        self._spec = spec
        self._given: dict[str, float] = {}
        self._rate = math.nan
        self.buffers: Buffers = {name: np.zeros((), dtype=np.float32) for name in spec.scalars}
        self._step = self.buffers.get(STEP)
        self._set(spec.defaults)

    def set(self, learning_rate: float, step: int, given: Mapping[str, float]) -> None:
        """For the step that comes; those that are not given have their defaults.

        Args:
            learning_rate: positive and finite.
            step: 1 for the first.
            given: others by name.

        Raises:
            DataError: one is unknown to the graph, or out of range (named): nothing has changed then.
        """
        if learning_rate != self._rate and (unfit := unfit_rate(learning_rate)):
            raise DataError(unfit)
        if given != self._given:
            self._set(given)
            self._given = dict(given)
        if learning_rate != self._rate:
            self.buffers[LEARNING_RATE][...] = self._rate = learning_rate
        if self._step is not None:
            self._step[...] = step

    @property
    def bounded(self) -> bool:
        """Whether a step is bounded as they are now."""
        return any(bool(self.buffers[name]) for name in BOUNDS if name in self.buffers)

    def _set(self, given: Mapping[str, float]) -> None:
        unfit = unfit_scalar(self._spec, given)
        if unfit:
            raise DataError(unfit)
        for name, value in {**self._spec.defaults, **given}.items():
            self.buffers[name][...] = value


class ClassVectors:
    """The (classes,) inputs of a training graph, each in a buffer that a session reads; ones unless set.

    Args:
        spec: of the graph.
        classes: how many; None for a regression.

    Raises:
        DataError: the graph wants them of a model without classes.
    """

    def __init__(self, spec: TrainingGraphSpec, classes: int | None) -> None:
        if spec.class_inputs and classes is None:
            raise DataError(f"{spec.file} needs {spec.class_inputs[0]!r} of the classes, and the model has none")
        self._name = spec.name
        self.buffers: Buffers = {name: np.ones(classes or 0, dtype=np.float32) for name in spec.class_inputs}

    def set(self, given: Mapping[str, NDArray[Any]]) -> None:
        """From now on.

        Args:
            given: (classes,) by name, finite, not negative and not all zero.

        Raises:
            DataError: one is unknown to the graph or unfit (named): nothing has changed then.
        """
        for name, value in given.items():
            if name not in self.buffers:
                have = ", ".join(repr(known) for known in self.buffers) or "none"
                raise DataError(f"training graph {self._name!r} has no class input {name!r} (it has {have})")
            if value.shape != self.buffers[name].shape:
                raise DataError(f"{name!r} has shape {list(value.shape)}, {list(self.buffers[name].shape)} is needed")
            if not (np.isfinite(value).all() and (value >= 0).all() and value.any()):
                raise DataError(f"{name!r} must be finite, not negative and not all zero")
        for name, value in given.items():
            self.buffers[name][...] = value


def initial_buffers(spec: TrainingGraphSpec, weights: Weights) -> tuple[Buffers, Buffers]:
    """Parameters and statistics as given and states of zeros by graph input name, and as much memory beside it."""
    first: Buffers = {name: np.array(weights[name], np.float32) for name in (*spec.trainable, *spec.statistics)}
    packed = spec.packed or []
    for state in spec.state:
        first.update({f"{state}.{name}": np.zeros_like(first[name]) for name in spec.trainable if name not in packed})
        if packed:
            first[f"{state}.{PACKED}"] = np.zeros(sum(first[name].size for name in packed), np.float32)
    return first, {name: np.empty_like(value) for name, value in first.items()}


def anchors(spec: TrainingGraphSpec, weights: Weights) -> Buffers:
    """What the proximal term pulls to, by graph input name; empty for a graph without one."""
    return {f"{BASE}.{name}": np.array(weights[name], np.float32) for name in spec.trainable if spec.anchored}


def check_interface(
    session: Session, spec: TrainingGraphSpec, manifest: Manifest, *, without: Collection[str] = ()
) -> None:
    """Refuse a training graph whose inputs and outputs are not as its manifest entry says.

    Args:
        without: scalars that it does not have.

    Raises:
        DataError: one is absent or too many (named).
    """
    alone = [name for name in spec.trainable if name not in (spec.packed or [])]
    states = [f"{state}.{name}" for state in spec.state for name in (*alone, *([PACKED] if spec.packed else []))]
    carried = [*spec.trainable, *spec.statistics, *states]
    scalars = set(spec.scalars) - set(without)
    inputs = {*(tensor.name for tensor in fed_inputs(manifest, spec)), *carried, *scalars, *spec.class_inputs}
    inputs |= set(spec.fixed)
    inputs |= {f"{BASE}.{name}" for name in spec.trainable if spec.anchored}
    inputs |= set() if spec.label_input is None else {spec.label_input}
    outputs = {LOSS, *spec.reports, *(f"out.{name}" for name in carried)}
    for kind, wanted, found in (("input", inputs, session.inputs), ("output", outputs, session.outputs)):
        odd = sorted(wanted.symmetric_difference(found))
        if odd:
            raise DataError(f"{session.what}: {kind} {odd[0]!r} is not as the manifest says")
