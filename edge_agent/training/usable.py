"""Which samples a round can use: those with a label of this bundle, of which the base weights say something."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.model.head import HeadModel
from edge_agent.model.inference import InferenceModel
from edge_agent.samples.record import SampleSet
from edge_agent.training.evaluation import BLOCK_ROWS, Scores
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tasks import task_classes

MOST_LEFT_OUT = 0.1
"""Where the base weights fail on more than this share of the samples it is the weights that are bad."""
_LARGEST = float(np.finfo(np.float32).max)


def of_this_bundle(samples: SampleSet, manifest: Manifest) -> SampleSet:
    """Without the samples whose label is no class here: another bundle served the same inputs when they came."""
    if manifest.classes is None:
        return samples
    named = task_classes(manifest)
    tasks = samples.tasks or [None] * len(samples.labels)
    classes = np.array([named.get(task or "", manifest.classes) for task in tasks], np.int64)
    labels = np.asarray(samples.labels, np.float64)
    fit = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    if fit.all():
        return samples
    rows = np.flatnonzero(fit)
    return replace(
        samples,
        features={name: array[rows] for name, array in samples.features.items()},
        labels=labels[rows].astype(np.int64),
        ids=[samples.ids[row] for row in rows],
        tasks=[tasks[row] for row in rows] if samples.tasks else samples.tasks,
        rehearsed=int(fit[: samples.rehearsed].sum()),
    )


def with_finite_loss(scores: Scores) -> NDArray[np.bool_]:
    """(n,) whether a sample's loss is finite as float32, which the training graph computes in.

    A sensor that gave one absurd value for one sample would else end every round for as long as the sample is kept.
    """
    usable: NDArray[np.bool_] = scores.losses <= _LARGEST
    return usable


def with_finite_output(model: InferenceModel | HeadModel, features: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """(n,) whether a model's first output is finite: what can be said of a sample without a label."""
    count = len(next(iter(features.values())))
    usable = np.zeros(count, np.bool_)
    for start in range(0, count, BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        output = model.run({name: array[rows] for name, array in features.items()}, [model.primary])[model.primary]
        usable[rows] = np.isfinite(output.reshape(len(output), -1)).all(axis=1)
    return usable


def too_many_left_out(usable: NDArray[np.bool_]) -> bool:
    """Whether the base weights, not some samples, are to blame."""
    return bool(len(usable)) and float(1 - usable.mean()) > MOST_LEFT_OUT
