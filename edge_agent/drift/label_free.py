"""What a bundle knows of its outputs without a shift: the start of every judgement without labels."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.fed_ade import FedAdeParams
from edge_agent.drift.fed_ade_scale import SignalScale, calibrate_signal, directions
from edge_agent.drift.label_shift import softmax
from edge_agent.errors import DataError
from edge_agent.wire.errors import WireError
from edge_agent.wire.tensors import Weights, decode_weights, encode_weights

LABEL_FREE_FILE = "label_free.safetensors"
SMOOTHING = 0.95
"""Of the scaled shift. On development seeds of digits, four schedules of label and covariate shift each, 0.8 was up to
0.3 points worse and none at all up to 5 points: noise that is scaled up makes rates jump between their bounds."""
_PRIOR, _UNCERTAINTY, _REPRESENTATION = "class_prior", "uncertainty", "representation"


@dataclass(frozen=True)
class LabelFreeCalibration:
    """From held-out data, by the weights that the bundle came with.

    Args:
        class_prior: (classes,) mean probabilities; empty for a regression.
        uncertainty, representation: scales of Fed-ADE's signals; None: the bundle has no such output, or it says
            nothing.
    """

    class_prior: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    uncertainty: SignalScale | None = None
    representation: SignalScale | None = None

    @property
    def scaled(self) -> FedAdeParams:
        """Shifts judged by these scales."""
        return FedAdeParams(smoothing=SMOOTHING, uncertainty=self.uncertainty, representation=self.representation)

    def encode(self) -> bytes:
        """As a file of the bundle, float32."""
        tensors: Weights = {_PRIOR: self.class_prior.astype(np.float32)}
        for name, scale in ((_UNCERTAINTY, self.uncertainty), (_REPRESENTATION, self.representation)):
            if scale is not None:
                tensors[name] = np.array([scale.spread, scale.reference], np.float32)
        return encode_weights(tensors)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """From :meth:`encode`; tensors of other names are ignored.

        Raises:
            DataError: it is no such file.
        """
        try:
            tensors = decode_weights(payload)
        except WireError as error:
            raise DataError(f"{LABEL_FREE_FILE}: {error.problem}", "build the bundle again") from None
        prior = tensors.get(_PRIOR)
        if prior is None or prior.ndim != 1 or not np.isfinite(prior).all() or (prior < 0).any():
            raise DataError(f"{LABEL_FREE_FILE}: {_PRIOR!r} is missing or no list of shares", "build the bundle again")
        return cls(prior.astype(np.float64), _scale(tensors, _UNCERTAINTY), _scale(tensors, _REPRESENTATION))


def calibrate_label_free(
    logits: NDArray[Any] | None, embeddings: NDArray[Any] | None, labels: NDArray[Any], rng: "np.random.Generator"
) -> LabelFreeCalibration:
    """The calibration from a model's outputs on held-out samples.

    Args:
        logits: (n, classes); None for a regression.
        embeddings: (n, ...); None where the model gives none.
        labels: (n,) class numbers, or targets.
        rng: draws the reference shifts.

    Raises:
        DataError: fewer than two samples with finite outputs.
    """
    prior, uncertainty, representation = np.zeros(0), None, None
    if logits is not None:
        probabilities = softmax(logits)
        uncertainty = calibrate_signal(probabilities, labels, rng)
        prior = np.nanmean(probabilities, axis=0)
    if embeddings is not None:
        representation = calibrate_signal(directions(embeddings), labels, rng)
    return LabelFreeCalibration(prior, uncertainty, representation)


def _scale(tensors: Weights, name: str) -> SignalScale | None:
    found = tensors.get(name)
    if found is None:
        return None
    if found.shape != (2,):
        raise DataError(f"{LABEL_FREE_FILE}: {name!r} has shape {list(found.shape)}", "build the bundle again")
    return SignalScale(float(found[0]), float(found[1]))
