"""Optimiser steps, one or several at a time, by a training graph of the bundle."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import primary_output, refuse_unfit_weights
from edge_agent.model.series import SKIPPED, Series, Steps, steps_at_once
from edge_agent.model.session import RUNTIME_ERRORS, Session, first_line
from edge_agent.model.step_checks import BatchCheck
from edge_agent.model.step_inputs import LOSS, ClassVectors, Scalars, anchors, check_interface, initial_buffers
from edge_agent.wire.scalars import LEARNING_RATE, STEP, unfit_rate
from edge_agent.wire.tensors import Weights

LARGE_SAMPLE_VALUES = 1024
"""From here on a net's intermediate values are taken to be large: their memory is not planned as one block."""
COPIED_MAX_BYTES = 16_384
"""Of a batch's features that are copied to bound memory: binding an array takes a microsecond, as copying so much."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TrainingStep:
    """Parameters and optimiser state under a training graph. For one thread at a time.

    Two sets of buffers take turns as input and output, of what the graph changes and no more: onnxruntime borrows the
    memory it is given, and one set for both gave NaN.

    Args:
        bundle: a loaded bundle.
        graph_name: one of its training graphs.
        weights: every trainable tensor of the bundle; copied. A graph with a proximal term pulls to them.
        threads: threads inside an operator; results repeat bit for bit at a fixed count.

    Raises:
        DataError: no such graph, unfit weights (named), or a graph that onnxruntime refuses or that is not
            as the manifest says.
    """

    def __init__(self, bundle: Bundle, graph_name: str, weights: Weights, *, threads: int = 1) -> None:
        refuse_unfit_weights(weights, bundle.manifest)
        primary_output(bundle.manifest)
        self._manifest = bundle.manifest
        self.spec = bundle.training_graph(graph_name)
        self._check = BatchCheck(bundle.manifest, self.spec)
        self._bundle, self._threads = bundle, threads
        self._series: Series | None = None
        self._session = Session(
            self.spec.file,
            bundle.read(self.spec.file),
            bundle.frozen(self.spec.file),
            threads=threads,
            planned=self._check.sample_values < LARGE_SAMPLE_VALUES,
        )
        check_interface(self._session, self.spec, bundle.manifest)
        self._scalars = Scalars(self.spec)
        self._vectors = ClassVectors(self.spec, self._check.classes)
        self._anchors = anchors(self.spec, weights)
        self._sets = initial_buffers(self.spec, weights)
        self._untouched = {n: np.array(v, np.float32, order="C") for n, v in weights.items() if n not in self._sets[0]}
        self._names = list(weights)
        self._said = {name: np.zeros((), dtype=np.float32) for name in (LOSS, *self.spec.reports)}
        self._bindings = (self._bind(0), self._bind(1))
        self._held: dict[str, NDArray[Any]] = {}
        self._turn, self._steps = 0, 0

    def step(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any] | None = None,
        *,
        learning_rate: float,
        scalars: Mapping[str, float] | None = None,
        class_inputs: Mapping[str, NDArray[Any]] | None = None,
    ) -> float:
        """Train on one batch.

        Args:
            features: an array per model input, the batch first; for a head's graph the embedding by its name.
            labels: (n,) class numbers, or (n,) targets; of no account to a graph without labels.
            learning_rate: positive and finite.
            scalars: others of the graph's, where its defaults are not wanted.
            class_inputs: (classes,) vectors of the graph's; they stay until given again, and are ones at first.

        Returns: the mean loss over the batch, before the step.

        Raises:
            DataError: an input, a scalar or the labels are unfit (named): nothing has changed then.
        """
        checked = self._check.one(features, labels)
        self._scalars.set(learning_rate, self._steps + 1, scalars or _NOTHING)
        if class_inputs:
            self._vectors.set(class_inputs)
        binding = self._bindings[self._turn]
        for name, value in features.items():
            if value.nbytes <= COPIED_MAX_BYTES:
                self._feed(name, value)
            else:
                self._held.pop(name, None)
                binding.bind_cpu_input(name, np.ascontiguousarray(value))
        if checked is not None and self.spec.label_input is not None:
            self._feed(self.spec.label_input, checked)
        try:
            self._session.native.run_with_iobinding(binding)
        except RUNTIME_ERRORS as error:
            raise DataError(f"{self.spec.file} cannot run: {first_line(error)}") from error
        self._turn = 1 - self._turn
        self._steps += not self._said.get(SKIPPED, False)  # Adam does not count a step that was not taken
        return float(self._said[LOSS])

    def steps(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any] | None = None,
        *,
        learning_rates: Sequence[float],
        scalars: Mapping[str, float] | None = None,
        class_inputs: Mapping[str, NDArray[Any]] | None = None,
    ) -> Steps:
        """Train on k batches of one size, one after the other; what comes of it is that of k calls of :meth:`step`.

        Where the bundle has a graph of several steps and none is bounded that is one call of onnxruntime, which for a
        net of ten thousand parameters saves a quarter of the time.

        Args:
            features: (k, n, ...) per model input.
            labels: (k, n).
            learning_rates: k, one a step.
            scalars, class_inputs: as of :meth:`step`.

        Raises:
            DataError: as :meth:`step`; where a batch or a rate is unfit nothing has changed.
        """
        count = len(learning_rates)
        checked = self._check.several(features, labels, count)
        for rate in {*learning_rates}:
            if unfit := unfit_rate(rate):
                raise DataError(unfit)
        self._scalars.set(learning_rates[0], self._steps + 1, scalars or _NOTHING)
        if class_inputs:
            self._vectors.set(class_inputs)
        if self.spec.series is not None and count > 1 and not self._scalars.bounded:
            taken = self._in_series(features, checked, learning_rates)
            if taken is not None:
                return taken
        return self._singly(features, checked, learning_rates, scalars)

    def steps_at_once(self, batch_bytes: int) -> int:
        """How many steps :meth:`steps` takes at best, given the bytes of a batch's features; 1: it has no advantage."""
        return steps_at_once(self.spec, batch_bytes)

    def open_series(self) -> Series:
        """The graph of several steps, made when it is first needed.

        Raises:
            DataError: there is none, onnxruntime refuses it, or it is not as the manifest says.
        """
        if self._series is None:
            self._series = Series(self._bundle, self.spec, self._sets, self._fixed(), threads=self._threads)
        return self._series

    @property
    def reports(self) -> dict[str, float]:
        """What the last step said of itself, by name: ``gradient_norm`` before clipping, ``update_norm``, ``skipped``.

        ``skipped`` is 1 where the step left everything as it was: the gradient was not finite (its norm then is not
        either), or no sample of the batch counted.
        """
        return {name: float(self._said[name]) for name in self.spec.reports}

    def load(self, weights: Weights) -> None:
        """Begin anew from other weights, with optimiser states of zero; a proximal term still pulls to the first ones.

        Args:
            weights: every trainable tensor of the bundle; copied.

        Raises:
            DataError: unfit weights (named): nothing has changed then.
        """
        refuse_unfit_weights(weights, self._manifest)
        current, _ = initial_buffers(self.spec, weights)
        for name, buffer in self._sets[self._turn].items():
            buffer[...] = current[name]
        for name in self._untouched:
            self._untouched[name][...] = weights[name]
        self._steps = 0

    def weights(self) -> Weights:
        """A copy of every trainable tensor of the bundle; those that the graph does not train as given."""
        current = {**self._untouched, **self._sets[self._turn]}
        return {name: current[name].copy() for name in self._names}

    def _in_series(
        self, features: Mapping[str, NDArray[Any]], labels: NDArray[Any] | None, rates: Sequence[float]
    ) -> Steps | None:
        """All steps in one call; None: one would have been skipped, and nothing has changed."""
        count = len(rates)
        fed = {**features, LEARNING_RATE: np.array(rates, np.float32)}
        if labels is not None and self.spec.label_input is not None:
            fed[self.spec.label_input] = labels
        if STEP in self.spec.scalars:
            fed[STEP] = np.arange(self._steps + 1, self._steps + 1 + count, dtype=np.float32)
        said = self.open_series().take(self._turn, fed)
        if said[SKIPPED].any():
            return None
        self._turn = 1 - self._turn
        self._steps += count
        for name, buffer in self._said.items():
            buffer[...] = said[name][-1]
        return Steps(said[LOSS].copy(), 0)

    def _singly(
        self,
        features: Mapping[str, NDArray[Any]],
        labels: NDArray[Any] | None,
        rates: Sequence[float],
        scalars: Mapping[str, float] | None,
    ) -> Steps:
        losses, skipped = np.empty(len(rates), np.float32), 0
        for place, rate in enumerate(rates):
            batch = {name: value[place] for name, value in features.items()}
            told = None if labels is None else labels[place]
            losses[place] = self.step(batch, told, learning_rate=rate, scalars=scalars)
            skipped += bool(self._said.get(SKIPPED, False))
        return Steps(losses, skipped)

    def _fixed(self) -> Sequence[Mapping[str, NDArray[np.float32]]]:
        """What the graph reads and does not change."""
        read = {name: self._untouched[name] for name in self.spec.fixed}
        return self._scalars.buffers, self._vectors.buffers, self._anchors, read

    def _feed(self, name: str, value: NDArray[Any]) -> None:
        """Copy it to where the session reads it; anew bound, which takes longer, is only another shape."""
        held = self._held.get(name)
        if held is None or held.shape != value.shape:
            self._held[name] = held = np.empty(value.shape, value.dtype)
            for binding in self._bindings:
                binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(held))
        held[...] = value

    def _bind(self, source: int) -> ort.IOBinding:
        binding = self._session.native.io_binding()
        for buffers in (self._sets[source], *self._fixed()):
            for name, buffer in buffers.items():
                binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(buffer))
        for name, buffer in self._sets[1 - source].items():
            binding.bind_ortvalue_output(f"out.{name}", ort.OrtValue.ortvalue_from_numpy(buffer))
        for name, buffer in self._said.items():
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(buffer))
        return binding
