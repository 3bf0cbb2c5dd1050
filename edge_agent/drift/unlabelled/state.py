"""What the label-free monitor remembers of a stream; of fixed size, and the same after a restart, bit for bit."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.unlabelled.filters import MEMORIES
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.drift.unlabelled.signals import BEFORE
from edge_agent.errors import DataError

_ARRAYS = ("means", "level", "per_deviation", "signals", "turn_factors", "sums", "squares")


@dataclass(frozen=True, slots=True)
class LabelFreeState:
    """What is remembered of a stream; of fixed size.

    Attributes:
        means: (5, columns) weighted means of the standardised scores' distance from their level.
        level: (columns + directions,) that level: the reference's, or the stream's own.
        per_deviation: (columns,) one over the rows' deviations, in the reference or in the stream.
        signals: (3, shares + directions) Fed-ADE's vectors: of the batch before, of the last nine, and the level.
        history: for explanations.
        turn_factors: (signals,) what brings Fed-ADE's signals to the scale that they have in the reference.
        sums, squares: (columns + directions,) of the batches that the level is being learnt from.
        learning: batches that are still to be learnt from.
        learns_inputs: the inputs' level is being learnt too.
        own_inputs, own_answers: whether inputs, and the rest, are compared with a level learnt from the stream.
        inputs_alarmed: the inputs alone lay above the threshold.
        batches: seen so far.
    """

    means: NDArray[np.float32]
    level: NDArray[np.float32]
    per_deviation: NDArray[np.float32]
    signals: NDArray[np.float32]
    turn_factors: NDArray[np.float32]
    history: History
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    learning: int = 0
    learns_inputs: bool = False
    own_inputs: bool = False
    own_answers: bool = False
    inputs_alarmed: bool = False
    batches: int = 0

    @classmethod
    def start(cls, params: LabelFreeParams) -> Self:
        """Nothing seen yet: everything is at the reference's level."""
        columns = params.scoring.columns
        return cls(
            means=np.zeros((len(MEMORIES), columns), np.float32),
            level=params.whole_level,
            per_deviation=params.per_deviation,
            signals=no_batch_before(params.signal_level),
            turn_factors=np.ones(params.signals, np.float32),
            history=History(params.history_width),
            sums=np.zeros(columns + params.scoring.directions),
            squares=np.zeros(columns + params.scoring.directions),
        )

    def after(
        self,
        means: NDArray[np.float32],
        vectors: NDArray[np.float32],
        history: History,
        count: int,
        *,
        alarmed: bool,
    ) -> Self:
        """After some batches.

        Args:
            means, history: as they are then.
            vectors: the last one's and Fed-ADE's (``signals.together``).
            count: batches.
            alarmed: the inputs alone lay above the threshold at the last.
        """
        signals = vectors[1:].copy()
        signals[BEFORE] = vectors[0]
        return type(self)(
            means=means.copy(),
            level=self.level,
            per_deviation=self.per_deviation,
            signals=signals,
            turn_factors=self.turn_factors,
            history=history,
            sums=self.sums,
            squares=self.squares,
            learning=self.learning,
            learns_inputs=self.learns_inputs,
            own_inputs=self.own_inputs,
            own_answers=self.own_answers,
            inputs_alarmed=alarmed,
            batches=self.batches + count,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As arrays of fixed size."""
        flags = (self.learns_inputs, self.own_inputs, self.own_answers, self.inputs_alarmed)
        return {
            "means": self.means,
            "level": self.level,
            "per_deviation": self.per_deviation,
            "signals": self.signals,
            "turn_factors": self.turn_factors,
            "sums": self.sums,
            "squares": self.squares,
            "counts": np.array([self.learning, *map(int, flags), self.batches], np.int64),
            **self.history.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, params: LabelFreeParams, arrays: dict[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`, bit for bit.

        Raises:
            DataError: an array is missing or of another shape or type: the state belongs to another bundle.
        """
        fresh = cls.start(params)
        for name, like in fresh.to_arrays().items():
            have = arrays.get(name)
            if have is None or have.shape != like.shape or have.dtype != like.dtype:
                raise DataError(f"label-free: stored array {name!r} is missing or of another shape", "start anew")
        learning, *flags, batches = arrays["counts"].tolist()
        named = zip(("learns_inputs", "own_inputs", "own_answers", "inputs_alarmed"), map(bool, flags), strict=True)
        plain = {name: arrays[name] for name in _ARRAYS}
        history = History.from_arrays(arrays["averaged"], arrays["single"])
        told: dict[str, Any] = {**plain, **dict(named)}
        return cls(history=history, learning=learning, batches=batches, **told)


def no_batch_before(level: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fed-ADE's vectors where all that is known is the level."""
    return np.stack([np.zeros_like(level), level, level])
