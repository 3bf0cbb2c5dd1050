"""Fed-ADE on a gateway: what a model sees in a batch, and the learning rate of a step that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.fed_ade import FedAdeParams, FedAdeState, Shift, step
from edge_agent.drift.label_free import LABEL_FREE_FILE, LabelFreeCalibration
from edge_agent.drift.label_shift import softmax
from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.wire.manifest import Manifest

LEAST_RATE_SHARE = 1e-6
"""Of the largest rate: a step of rate zero is none, and training graphs refuse it."""


class Model(Protocol):
    """An `InferenceModel` or a `HeadModel`."""

    primary: str

    def run(self, features: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name."""


@dataclass(frozen=True)
class Sight:
    """What a model says of a batch.

    Args:
        probabilities: (n, classes); None for a regression.
        embeddings: (n, ...); None where the model gives none.
    """

    probabilities: NDArray[np.float64] | None
    embeddings: NDArray[Any] | None


def see(model: Model, manifest: Manifest, features: Mapping[str, NDArray[Any]]) -> Sight:
    """Run a model for what Fed-ADE looks at; for a head, whose features are embeddings, those are the embeddings."""
    outputs = {**features, **model.run(features)}
    embedding = next((o.name for o in manifest.outputs if o.role == "embedding" and o.name in outputs), None)
    logits = outputs[model.primary] if manifest.kind == "classification" else None
    if logits is not None and (logits.ndim == 1 or logits.shape[1] == 1):
        logits = np.stack([np.zeros(len(logits)), logits.reshape(-1)], axis=1)  # one logit: that of the second class
    return Sight(None if logits is None else softmax(logits), None if embedding is None else outputs[embedding])


def label_free_calibration(bundle: Bundle) -> LabelFreeCalibration | None:
    """The bundle's; None where it was built without.

    Raises:
        DataError: the file is damaged.
    """
    if LABEL_FREE_FILE not in bundle.manifest.files:
        return None
    return LabelFreeCalibration.decode(bundle.read(LABEL_FREE_FILE))


def fed_ade_params(bundle: Bundle) -> FedAdeParams:
    """Scaled where the bundle says how, else as published.

    Raises:
        DataError: the bundle's file is damaged.
    """
    calibration = label_free_calibration(bundle)
    return FedAdeParams() if calibration is None else calibration.scaled


class FedAdeRate:
    """The schedule ``fed-ade``: each step's rate by how far its batch lies from the one before.

    The batches must come in the order of time. They are seen by one model throughout, the round's base: its view of
    two batches differs where they do, while a model that learns would see its own steps as a shift.

    Args:
        model: under the base weights.
        manifest: the bundle's.
        params: how a shift is judged.
        minimum, maximum: of the rate; 0 <= minimum <= maximum, 0 < maximum.

    Raises:
        DataError: rates that are out of order.
    """

    in_time_order = True

    def __init__(
        self, model: Model, manifest: Manifest, params: FedAdeParams, *, minimum: float, maximum: float
    ) -> None:
        if not 0 <= minimum <= maximum or not 0 < maximum < float("inf"):
            raise DataError(f"fed-ade: rates from {minimum:g} to {maximum:g}", "give a minimum up to the maximum")
        self._model, self._manifest, self._params = model, manifest, params
        self._least, self._minimum, self._maximum = LEAST_RATE_SHARE * maximum, minimum, maximum
        self._state = FedAdeState()
        self._rates: list[float] = []
        self._shifts: list[float] = []

    def rate(self, features: Mapping[str, NDArray[Any]]) -> float:
        """The learning rate for the step on this batch; at most the maximum, and never zero.

        Raises:
            DataError: the model cannot run on the features, or has neither classes nor embeddings.
        """
        self._state, shift = self._judge(features)
        self._shifts.append(shift.value)
        self._rates.append(max(self._least, shift.rate(self._minimum, self._maximum)))
        return self._rates[-1]

    def begin_epoch(self) -> None:
        """Time begins again: the oldest batch is not compared with the newest."""
        self._state = FedAdeState(shift=self._state.shift, batches=self._state.batches)

    def metrics(self) -> dict[str, int | float]:
        """Mean and largest rate, mean shift, and whether it was scaled."""
        if not self._rates:
            return {}
        scaled = self._params.uncertainty is not None or self._params.representation is not None
        return {
            "fed-ade-rate-mean": float(np.mean(self._rates)),
            "fed-ade-rate-max": max(self._rates),
            "fed-ade-shift-mean": float(np.mean(self._shifts)),
            "fed-ade-scaled": int(scaled),
        }

    def _judge(self, features: Mapping[str, NDArray[Any]]) -> tuple[FedAdeState, Shift]:
        sight = see(self._model, self._manifest, features)
        if sight.probabilities is None and sight.embeddings is None:
            raise DataError(
                f"bundle {self._manifest.name!r} has neither classes nor an embedding to tell a shift by",
                "build it with an output of role embedding, or take the constant schedule",
            )
        return step(self._params, self._state, sight.probabilities, sight.embeddings)
