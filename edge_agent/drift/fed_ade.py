"""Fed-ADE: how far a stream moved since the batch before, without labels, and the learning rate that follows.

Two signals of a batch: the mean of the class probabilities, and the mean of the embeddings, each embedding brought to
length one. A signal is one minus the cosine to what was before; the shift is their mean, in [0, 1]. As published that
is all (raw). Two batches of one distribution differ too, the more the smaller they are: on digits, batches of 32, the
probabilities' signal is 0.19 without a shift and 0.24 more when half of the classes stay away. So, scaled, the value
expected without a shift is taken off, the rest divided by the value at a reference shift, and averaged over time.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.fed_ade_scale import SignalScale, cosine_distance, directions
from edge_agent.errors import DataError

_State = tuple["Signal", float | None]


@dataclass(frozen=True, slots=True)
class FedAdeParams:
    """How shifts are judged. All at their defaults: as published.

    Args:
        memory: weight of the past in what a batch is compared with, in [0, 1); 0: the batch before.
        smoothing: weight of the past in the shift that is given out, in [0, 1); 0: the last batch's alone.
        uncertainty, representation: the signals' scales; a signal without one is raw.
    """

    memory: float = 0.0
    smoothing: float = 0.0
    uncertainty: SignalScale | None = None
    representation: SignalScale | None = None

    def __post_init__(self) -> None:
        """Refuse weights outside their range, by name."""
        for name in ("memory", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(f"fed-ade: {name} = {getattr(self, name)} is outside [0, 1)")


@dataclass(frozen=True, slots=True)
class Signal:
    """What is remembered of one signal.

    Args:
        mean: of what came before; empty: nothing came.
        size: of how many samples that mean is worth.
    """

    mean: tuple[float, ...] = ()
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class FedAdeState:
    """What is remembered of a stream: O(classes) and O(d) numbers.

    Args:
        uncertainty, representation: each signal's past.
        shift: the smoothed shift; None: none was judged yet.
        batches: seen so far.
    """

    uncertainty: Signal = Signal()
    representation: Signal = Signal()
    shift: float | None = None
    batches: int = 0

    def to_json(self) -> str:
        """As text; every number comes back bit for bit."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From :meth:`to_json`.

        Raises:
            DataError: it is no such state.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            signals = {name: _read_signal(raw[name]) for name in ("uncertainty", "representation")}
            shift = None if raw["shift"] is None else float(raw["shift"])
            state = cls(**signals, shift=shift, batches=int(raw["batches"]))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise DataError(f"fed-ade: the stored state cannot be read ({error})", "start anew") from None
        if state.batches < 0 or not (shift is None or 0 <= shift <= 1):
            raise DataError("fed-ade: the stored state is out of range", "start anew")
        return state


@dataclass(frozen=True, slots=True)
class Shift:
    """What a batch showed.

    Args:
        value: in [0, 1]; 0 where nothing could be compared yet.
        uncertainty, representation: each signal in [0, 1], before smoothing; None: it could not be compared.
        samples: that counted.
        left_out: rows that held something not finite.
    """

    value: float
    uncertainty: float | None
    representation: float | None
    samples: int
    left_out: int

    def rate(self, minimum: float, maximum: float) -> float:
        """The learning rate for this batch: minimum + (maximum - minimum) x value."""
        return minimum + (maximum - minimum) * self.value


def step(
    params: FedAdeParams,
    state: FedAdeState,
    probabilities: NDArray[Any] | None,
    embeddings: NDArray[Any] | None,
) -> tuple[FedAdeState, Shift]:
    """Compare a batch with what came before.

    The first batch shows a shift of 0; one without a finite row shows the smoothed shift so far, and changes nothing.
    An embedding of length zero adds no direction.

    Args:
        probabilities: (n, classes), each row's sum 1; None for a model without classes.
        embeddings: (n, ...), flattened a row; None for a model that gives none.

    Returns: the state after it, and what it showed.

    Raises:
        DataError: neither is given, their rows differ, or a row's length is not that of before: the state belongs to
            another model.

    Source: Park et al. 2026 (Fed-ADE), S_unc, S_rep and eta; S_rep is halved there, since a cosine of embeddings may
        be negative. Expectation, reference and smoothing are ours.
    Cost: O(n (classes + d)) time; O(classes + d) memory beyond the input.
    """
    finite = _finite_rows(probabilities, embeddings)
    count = int(finite.sum())
    if count == 0:
        return state, Shift(state.shift or 0.0, None, None, 0, len(finite))
    uncertainty: _State = (state.uncertainty, None)
    representation: _State = (state.representation, None)
    if probabilities is not None:
        mean = probabilities[finite].mean(axis=0, dtype=np.float64)
        uncertainty = _judge(params, params.uncertainty, state.uncertainty, mean, count, 1.0)
    if embeddings is not None:
        mean = directions(embeddings[finite]).mean(axis=0)
        representation = _judge(params, params.representation, state.representation, mean, count, 0.5)
    shift = _smoothed(params, state.shift, [value for _, value in (uncertainty, representation) if value is not None])
    after = FedAdeState(uncertainty[0], representation[0], shift, state.batches + 1)
    return after, Shift(shift or 0.0, uncertainty[1], representation[1], count, len(finite) - count)


def _finite_rows(probabilities: NDArray[Any] | None, embeddings: NDArray[Any] | None) -> NDArray[np.bool_]:
    given = [signal for signal in (probabilities, embeddings) if signal is not None]
    rows = {len(signal) for signal in given if signal.ndim > 1}
    if len(rows) != 1 or any(signal.ndim < 2 for signal in given):
        shapes = [list(signal.shape) for signal in given]
        raise DataError(f"fed-ade: signals of shape {shapes}", "give one or two, of as many rows each")
    finite = np.ones(rows.pop(), np.bool_)
    for signal in given:
        finite &= np.isfinite(signal).all(axis=tuple(range(1, signal.ndim)))
    return finite


def _judge(
    params: FedAdeParams,
    scale: SignalScale | None,
    before: Signal,
    mean: NDArray[np.float64],
    count: int,
    factor: float,
) -> _State:
    """One signal: its memory after the batch, and its value in [0, 1]; ``factor`` brings a raw one there."""
    if not before.mean:
        return Signal(tuple(mean.tolist()), float(count)), None
    if len(before.mean) != len(mean):
        raise DataError(f"fed-ade: rows of {len(mean)} values after rows of {len(before.mean)}", "start anew")
    past = np.array(before.mean)
    distance = cosine_distance(mean, past)
    value = distance
    if distance is not None:
        value = factor * distance if scale is None else scale.scaled(distance, count, before.size)
        value = min(1.0, value)
    kept = params.memory
    # of two independent means the sizes' inverses add by the squares of their weights
    size = 1.0 / (kept**2 / before.size + (1 - kept) ** 2 / count)
    return Signal(tuple((kept * past + (1 - kept) * mean).tolist()), size), value


def _smoothed(params: FedAdeParams, before: float | None, known: list[float]) -> float | None:
    if not known:
        return before
    now = sum(known) / len(known)
    return now if before is None else params.smoothing * before + (1 - params.smoothing) * now


def _read_signal(raw: dict[str, Any]) -> Signal:
    signal = Signal(tuple(float(value) for value in raw["mean"]), float(raw["size"]))
    sound = all(map(math.isfinite, signal.mean)) and math.isfinite(signal.size) and signal.size >= 0
    if not sound or (signal.mean and signal.size == 0):
        raise ValueError("a mean is not finite, or of no size")
    return signal
