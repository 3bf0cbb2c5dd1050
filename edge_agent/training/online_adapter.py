"""Weights that follow a stream between rounds, without labels: an overlay on a release, never a release.

Nothing here touches what serves; `edge_agent.runtime.adaptation` does (ADR 0018). The adapter holds an overlay, says
what the overlay is (a digest and how many batches made it), and goes back to the release when it is told to, when a
number is not finite, or when labelled samples say that the overlay serves them worse.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.fed_ade import FedAdeParams, FedAdeState, Shift, step
from edge_agent.drift.label_shift import estimate_shares
from edge_agent.errors import DataError, WireError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.adapter_settings import Adapted, AdapterSettings
from edge_agent.training.evaluation import scores
from edge_agent.training.fed_ade import LEAST_RATE_SHARE, Sight, fed_ade_params, label_free_calibration, see
from edge_agent.training.held_out import Comparison
from edge_agent.training.label_free_round import CLASS_PRIOR
from edge_agent.training.overlay_file import saved_weights
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import Weights, check_weights, encode_weights

Features = Mapping[str, NDArray[Any]]
__all__ = ["Adapted", "AdapterSettings", "OnlineAdapter"]


class OnlineAdapter:
    """An overlay on a release. For one thread at a time.

    Args:
        bundle: built with label-free graphs.
        release: the weights that serve; copied.
        settings: see `AdapterSettings`.
        threads: threads inside an operator.

    Raises:
        DataError: no such graph, one that takes labels, unfit weights (named), or a damaged calibration.
    """

    def __init__(self, bundle: Bundle, release: Weights, settings: AdapterSettings, *, threads: int = 1) -> None:
        graph = bundle.training_graph(settings.training_graph)
        if graph.label_input is not None:
            raise DataError(
                f"training graph {settings.training_graph!r} takes labels: a stream between rounds has none",
                "build the bundle with `--label-free`",
            )
        self._bundle, self._settings, self._threads = bundle, settings, threads
        # sorted: a file's tensors come in any order, and sums over them would differ in the last bit
        self._release = {name: release[name].copy() for name in sorted(release)}
        self._length = _length(self._release)
        self._embedding = graph.embedding
        self._view = InferenceModel(bundle, self._release, threads=threads)
        self._step = TrainingStep(bundle, settings.training_graph, self._release, threads=threads)
        self._params = FedAdeParams() if settings.published else fed_ade_params(bundle)
        calibration = label_free_calibration(bundle)
        known = calibration is not None and len(calibration.class_prior) > 0
        self._prior = calibration.class_prior if calibration is not None and known else np.ones(_classes(bundle))
        self._shift = FedAdeState()
        self.batches = 0

    def adapt(self, features: Features, *, sight: Sight | None = None, shares: NDArray[Any] | None = None) -> Adapted:
        """Follow one batch of unlabelled samples.

        Args:
            features: (n, ...) by input name; finite.
            sight: what is seen of the batch by the model that judges shifts and shares; None: what the release sees.
            shares: (classes,) of the classes, where they are known better than this batch tells; None: by the settings.

        Raises:
            DataError: the features are unfit (named): nothing has changed then.
        """
        seen = sight or see(self._view, self._bundle.manifest, features)
        state, shift = step(self._params, self._shift, seen.probabilities, seen.embeddings)
        if shift.left_out or shift.samples < self._settings.least_samples:
            self._shift = state
            return Adapted(0.0, shift, self.distance)
        rate = max(
            LEAST_RATE_SHARE * self._settings.maximum, shift.rate(self._settings.minimum, self._settings.maximum)
        )
        told = self._shares(seen) if shares is None else np.asarray(shares, np.float32)
        fed = self._fed(features)
        for _ in range(self._settings.steps):
            self._step.step(fed, None, learning_rate=rate, class_inputs={CLASS_PRIOR: told})
        self._shift = state
        self.batches += 1
        return self._guarded(rate, shift)

    @property
    def distance(self) -> float:
        """Of the overlay from the release, over the release's length."""
        return _distance(self._step.weights(), self._release, self._length)

    @property
    def digest(self) -> str:
        """What the overlay is, as weights are named."""
        return sha256_hex(encode_weights(self._step.weights()))

    def weights(self) -> Weights:
        """A copy of release and overlay together: finite, and as near the release as the settings say."""
        return self._step.weights()

    def load(self, weights: Weights) -> None:
        """Another overlay, such as the mean over several gateways of what they share; cut to the settings' distance.

        Raises:
            DataError: unfit weights (named): nothing has changed then.
        """
        self._step.load(self._near(weights))

    def reset(self) -> None:
        """The release again, and no memory of the stream; so after every activation, or when the operator says."""
        self._step.load(self._release)
        self._shift = FedAdeState()
        self.batches = 0

    def judge(self, features: Features, labels: NDArray[Any]) -> Comparison:
        """Release and overlay on labelled samples that nothing was trained on; an overlay that is worse is dropped.

        Raises:
            DataError: samples that do not fit (named).
        """
        manifest = self._bundle.manifest
        overlay = InferenceModel(self._bundle, self._step.weights(), threads=self._threads)
        comparison = Comparison(*(scores(model, manifest, features, labels) for model in (self._view, overlay)))
        if comparison.made_worse:
            self.reset()
        return comparison

    def save(self) -> bytes:
        """Overlay and memory in one; to be written by whoever owns files."""
        weights = encode_weights(self._step.weights())
        head = json.dumps(
            {"release": self._release_digest(), "shift": self._shift.to_json(), "batches": self.batches}
        ).encode()
        return len(head).to_bytes(4, "little") + head + weights

    def restore(self, saved: bytes) -> None:
        """From :meth:`save`, on the same release; bit for bit what it was.

        Raises:
            DataError: damaged, or of another release: nothing has changed then.
        """
        size = int.from_bytes(saved[:4], "little")
        try:
            head: dict[str, Any] = json.loads(saved[4 : 4 + size])
            state, batches = FedAdeState.from_json(head["shift"]), int(head["batches"])
            weights = saved_weights(saved)
            check_weights(weights, self._bundle.manifest.trainable)
        except (ValueError, KeyError, TypeError, WireError) as error:
            raise DataError(f"online adapter: the saved overlay cannot be read ({error})", "start anew") from None
        if head.get("release") != self._release_digest():
            raise DataError("online adapter: the saved overlay is of another release", "start anew")
        self._step.load(self._near(weights))
        self._shift, self.batches = state, batches

    def _shares(self, seen: Sight) -> NDArray[np.float32]:
        if not self._settings.label_shift or seen.probabilities is None:
            return self._prior.astype(np.float32)
        return estimate_shares(seen.probabilities, self._prior, strength=self._settings.strength).astype(np.float32)

    def _guarded(self, rate: float, shift: Shift) -> Adapted:
        weights = self._step.weights()
        if not all(np.isfinite(tensor).all() for tensor in weights.values()):
            self.reset()
            return Adapted(rate, shift, 0.0, "not-finite")
        distance = _distance(weights, self._release, self._length)
        if distance > self._settings.farthest:
            self._step.load(self._near(weights))
            distance = self._settings.farthest
        return Adapted(rate, shift, distance)

    def _near(self, weights: Weights) -> Weights:
        distance = _distance(weights, self._release, self._length)
        if distance <= self._settings.farthest:
            return weights
        share = np.float32(self._settings.farthest / distance)
        return {name: base + share * (weights[name] - base) for name, base in self._release.items()}

    def _fed(self, features: Features) -> Features:
        """What the graph is fed; below a head nothing moves, so that the release's embeddings are the overlay's."""
        return features if self._embedding is None else self._view.run(features, [self._embedding])

    def _release_digest(self) -> str:
        return hashlib.sha256(encode_weights(self._release)).hexdigest()


def _classes(bundle: Bundle) -> int:
    if bundle.manifest.classes is None:
        raise DataError(f"bundle {bundle.manifest.name!r} has no classes: nothing is known without labels")
    return bundle.manifest.classes


def _length(weights: Weights) -> float:
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in weights.values())) or 1.0


def _distance(weights: Weights, release: Weights, length: float) -> float:
    squares = (float(np.square(weights[name] - base, dtype=np.float64).sum()) for name, base in release.items())
    return math.sqrt(sum(squares)) / length
