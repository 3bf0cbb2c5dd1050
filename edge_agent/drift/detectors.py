"""Drift detectors as published: CLMA Algorithms 2 and 4, under the names of the reference package."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping

from edge_agent.drift.loss_rise import PUBLISHED_GAMMA
from edge_agent.errors import DataError

DRIFT_KEY = "clma-drift"
LOSS_KEY = "clma-loss"
NUM_EXAMPLES_KEY = "num-examples"
STATE_KEY = "clma-detector-state"

DetectorState = dict[str, float]


class DriftDetector(ABC):
    """Judges a client's losses one after the other; stateful between rounds."""

    @abstractmethod
    def update(self, loss: float) -> bool:
        """Whether drift shows in this round's loss."""

    @abstractmethod
    def reset(self) -> None:
        """Forget the history."""

    @abstractmethod
    def state_dict(self) -> DetectorState:
        """The state, as numbers."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take a state that :meth:`state_dict` gave."""


class LossThresholdDetector(DriftDetector):
    """Flags a loss more than ``gamma`` above the one before.

    A loss that is not finite exceeds every finite one before it (the model is broken, and that is
    to be reported), and never becomes the loss before: the round after is judged as if it had not
    been.

    Args:
        gamma: the rise tolerated, >= 0; published: 0.1.
        patience: exceedances in a row that flag, >= 1; published: 1. The loss before advances every
            round, so that with 2 or more a single step is hardly ever flagged.

    Source:
        N L et al. 2024 (CLMA), Algorithm 2, lines 9-12. Both losses start at infinity: the first
        round cannot flag.
    """

    def __init__(self, gamma: float = PUBLISHED_GAMMA, patience: int = 1) -> None:
        if not gamma >= 0:
            raise DataError(f"gamma = {gamma} is out of range", "give a number >= 0")
        if patience < 1:
            raise DataError(f"patience = {patience} is out of range", "give a whole number >= 1")
        self.gamma = gamma
        self.patience = patience
        self._previous_loss = math.inf
        self._consecutive = 0

    def update(self, loss: float) -> bool:
        """Whether this round's loss is flagged."""
        judged = loss if math.isfinite(loss) else math.inf
        exceeded = judged > self._previous_loss + self.gamma
        self._consecutive = self._consecutive + 1 if exceeded else 0
        if math.isfinite(judged):
            self._previous_loss = judged
        return self._consecutive >= self.patience

    def reset(self) -> None:
        """Forget the history: the next round cannot flag."""
        self._previous_loss = math.inf
        self._consecutive = 0

    def state_dict(self) -> DetectorState:
        """The loss before (may be infinite) and the run of exceedances."""
        return {"previous_loss": self._previous_loss, "consecutive": float(self._consecutive)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take a state; what is missing is as at the start."""
        self._previous_loss = float(state.get("previous_loss", math.inf))
        self._consecutive = int(state.get("consecutive", 0))


class InferenceDriftMonitor:
    """Scores batches while the model serves, and says when CLMA should run again.

    Args:
        detector: the rule; by default that of Algorithm 2.

    Source:
        N L et al. 2024 (CLMA), Algorithm 4. The gateway itself runs the calibrated form,
        ``edge_agent.drift.loss_rise``: measured, this one at gamma 0.1 fires on 18 % of the
        clean batches of 32.
    """

    def __init__(self, detector: DriftDetector | None = None) -> None:
        self.detector = LossThresholdDetector() if detector is None else detector

    def observe(self, loss: float) -> bool:
        """Whether drift shows in this batch's mean loss."""
        return self.detector.update(loss)

    def reset(self) -> None:
        """Forget the history, once the server was told or the model adapted."""
        self.detector.reset()


class DriftReporter:
    """Algorithm 2 for a client that is entered afresh each round: its state lives in a mapping.

    Args:
        memory: what outlives a round; the detector's state is kept under ``clma-detector-state``.
        detector_factory: makes the detector that the state is loaded into.
    """

    def __init__(
        self,
        memory: MutableMapping[str, DetectorState],
        detector_factory: Callable[[], DriftDetector] = LossThresholdDetector,
    ) -> None:
        self._memory = memory
        self.detector = detector_factory()
        stored = memory.get(STATE_KEY)
        if stored is not None:
            self.detector.load_state_dict(stored)

    def observe(self, loss: float) -> bool:
        """Whether this round's loss is flagged; the state is kept."""
        drifted = self.detector.update(loss)
        self._memory[STATE_KEY] = self.detector.state_dict()
        return drifted

    def reset(self) -> None:
        """Forget the history, and keep that."""
        self.detector.reset()
        self._memory[STATE_KEY] = self.detector.state_dict()

    def metrics(self, loss: float, num_examples: int) -> dict[str, int | float]:
        """The reply's metrics, the flag among them as 0 or 1."""
        drifted = self.observe(loss)
        return {NUM_EXAMPLES_KEY: num_examples, LOSS_KEY: loss, DRIFT_KEY: int(drifted)}
