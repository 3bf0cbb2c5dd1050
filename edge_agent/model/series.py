"""Several training steps in one call of onnxruntime, where the bundle has a graph for that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.session import RUNTIME_ERRORS, Session, first_line
from edge_agent.model.step_inputs import BOUNDS, LOSS, Buffers, check_interface
from edge_agent.wire.manifest import TrainingGraphSpec
from edge_agent.wire.scalars import LEARNING_RATE, STEP

STEPS_AT_ONCE = 32
"""More save little: the way into onnxruntime and back then is a twentieth of a step of the smallest net."""
SERIES_MAX_BYTES = 1024 * 1024
"""Of the features of one call: they are copied."""
SKIPPED = "skipped"
_SHAPES_KEPT = 4


@dataclass(frozen=True, slots=True)
class Steps:
    """What several steps gave.

    Attributes:
        losses: (k,) of each the mean over its batch, before the step.
        skipped: how many left everything as it was.
    """

    losses: NDArray[np.float32]
    skipped: int


class Series:
    """The graph of several steps, on the memory of a `TrainingStep`.

    Args:
        bundle: has the graph.
        spec: names it.
        sets: what changes, twice; they take turns as input and output.
        fixed: what else the graph reads, in memory of the step's.
        threads: threads inside an operator.

    Raises:
        DataError: onnxruntime refuses the graph, or it is not as the manifest says.
    """

    def __init__(
        self,
        bundle: Bundle,
        spec: TrainingGraphSpec,
        sets: tuple[Buffers, Buffers],
        fixed: Sequence[Mapping[str, NDArray[np.float32]]],
        *,
        threads: int,
    ) -> None:
        if spec.series is None or SKIPPED not in spec.reports:
            raise DataError(f"training graph {spec.name!r} has no graph of several steps that says what it skipped")
        self._spec, self._sets = spec, sets
        self._session = Session(spec.series, bundle.read(spec.series), bundle.frozen(spec.series), threads=threads)
        check_interface(self._session, spec, bundle.manifest, without=BOUNDS)
        own = {*BOUNDS, LEARNING_RATE, STEP}
        self._fixed = [{name: value for name, value in part.items() if name not in own} for part in fixed]
        self._blocks: dict[tuple[object, ...], _Block] = {}

    def take(self, turn: int, fed: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[np.float32]]:
        """Take k steps; they count only if none is skipped.

        Args:
            turn: the set of buffers to read; the other is written.
            fed: what each step has its own of, (k, ...) each: model inputs, labels, learning rate and number.

        Returns: loss and reports, (k,) each; good until the next call.

        Raises:
            DataError: onnxruntime refuses the values.
        """
        key = tuple((name, value.shape) for name, value in fed.items())
        block = self._blocks.pop(key, None) or self._block(fed)
        self._blocks[key] = block  # the last used is the last forgotten
        for name, value in fed.items():
            block.fed[name][...] = value
        try:
            self._session.native.run_with_iobinding(block.bindings[turn])
        except RUNTIME_ERRORS as error:
            raise DataError(f"{self._session.what} cannot run: {first_line(error)}") from error
        return block.said

    def _block(self, fed: Mapping[str, NDArray[Any]]) -> "_Block":
        while len(self._blocks) >= _SHAPES_KEPT:
            self._blocks.pop(next(iter(self._blocks)))
        held = {name: np.empty_like(value, order="C") for name, value in fed.items()}
        said = {name: np.empty(len(held[LEARNING_RATE]), np.float32) for name in (LOSS, *self._spec.reports)}
        return _Block(held, said, (self._bind(0, held, said), self._bind(1, held, said)))

    def _bind(self, source: int, held: Mapping[str, NDArray[Any]], said: Buffers) -> ort.IOBinding:
        binding = self._session.native.io_binding()
        for buffers in (self._sets[source], *self._fixed, held):
            for name, buffer in buffers.items():
                binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(buffer))
        for name, buffer in self._sets[1 - source].items():
            binding.bind_ortvalue_output(f"out.{name}", ort.OrtValue.ortvalue_from_numpy(buffer))
        for name, buffer in said.items():
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(buffer))
        return binding


@dataclass(frozen=True, slots=True)
class _Block:
    """Memory for calls of one shape, bound for either turn."""

    fed: Mapping[str, NDArray[Any]]
    said: Buffers
    bindings: tuple[ort.IOBinding, ort.IOBinding]


def steps_at_once(spec: TrainingGraphSpec, batch_bytes: int) -> int:
    """How many steps a call takes at best.

    Args:
        batch_bytes: of the features of one batch.
    """
    return 1 if spec.series is None else max(1, min(STEPS_AT_ONCE, SERIES_MAX_BYTES // max(batch_bytes, 1)))
