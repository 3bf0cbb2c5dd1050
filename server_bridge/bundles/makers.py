"""The monitors that a bundle gets beside `loss-rise`, and how each is calibrated."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import faults
from edge_agent.drift.accuracy.calibrate import calibrate_accuracy, step_rows
from edge_agent.drift.accuracy.params import NAME as ACCURACY
from edge_agent.drift.arrivals import NAME as ARRIVALS
from edge_agent.drift.arrivals import calibrate_arrivals
from edge_agent.drift.reference import Reference
from edge_agent.drift.sequential.calibration import calibrate_loss_level
from edge_agent.drift.sequential.calibration import judged_series as judged_losses
from edge_agent.drift.sequential.loss_level import NAME as LOSS_LEVEL
from edge_agent.drift.task_answers import NAMES, TaskAnswers
from edge_agent.drift.unlabelled import NAME as LABEL_FREE
from edge_agent.drift.unlabelled import calibrate as calibrate_label_free
from edge_agent.drift.unlabelled.fitting import fitted, judged_series
from edge_agent.wire.manifest import Manifest
from server_bridge.bundles.support import EFFECTIVE_LEAST, Asked, Made, Maker, PlainMaker

LEVEL_LEAST_ROWS = 256
"""Of losses: what fewer say of the level does not hold even a rate that is only aimed at. Measured with batches of 32
and 2e-3 aimed at: on independent losses 1e-4 from 256 rows and 1e-2 from 128 (docs/drift.md)."""


def _losses(reference: Reference, batch_size: int) -> NDArray[Any]:
    return judged_losses(reference.losses)


def _loss_level(reference: Reference, asked: Asked) -> Made:
    return calibrate_loss_level(
        reference.losses,
        batch_size=asked.batch_size,
        rate=asked.rate,
        rng=asked.rng,
        unsupported=asked.aimed,
        progress=asked.progress,
    )


def _scores(reference: Reference, batch_size: int) -> NDArray[Any]:
    fit = fitted(reference, batch_size=batch_size, rate=0.5, rng=np.random.default_rng(0))
    return judged_series(fit.params.scoring, fit.scores)


def _label_free(reference: Reference, asked: Asked) -> Made:
    return calibrate_label_free(
        reference,
        batch_size=asked.batch_size,
        rate=asked.rate,
        rng=asked.rng,
        unsupported=asked.aimed,
        progress=asked.progress,
    )


def _accuracy(reference: Reference, manifest: Manifest, batch_size: int, rng: np.random.Generator) -> Made:
    seen = reference.observed
    columns = sum(array[0].size for array in (seen.features, seen.outputs, seen.embeddings) if array is not None)
    params = calibrate_accuracy(reference, batch_size=step_rows(batch_size, columns), rng=rng)
    return params.to_spec(), params.to_arrays()


def _arrivals(reference: Reference, manifest: Manifest, batch_size: int, rng: np.random.Generator) -> Made:
    params = calibrate_arrivals(reference)
    return params.to_spec(), params.to_arrays()


def _faults(reference: Reference, manifest: Manifest, batch_size: int, rng: np.random.Generator) -> Made:
    return faults.calibrate(reference, manifest).to_spec()


def _task_scores(reference: Reference, batch_size: int) -> NDArray[Any]:
    return _scores(replace(reference, classes=None), batch_size)


LABELLED_MAKERS = (Maker(LOSS_LEVEL, _losses, _loss_level, least_rows=LEVEL_LEAST_ROWS, decides=True),)
"""Of monitors that need losses alone."""
MAKERS = (*LABELLED_MAKERS, Maker(LABEL_FREE, _scores, _label_free, least_batches=EFFECTIVE_LEAST))
"""Of all monitors that promise a rate of false alarms."""
SENSOR_MAKERS = (PlainMaker(faults.NAME, _faults),)
"""Of what looks at inputs alone, and promises no rate."""
PLAIN_MAKERS = (PlainMaker(ACCURACY, _accuracy), PlainMaker(ARRIVALS, _arrivals), *SENSOR_MAKERS)
"""Of those that state one of their own, or raise none."""


def task_makers(answers: TaskAnswers) -> tuple[Maker, ...]:
    """Of monitors of several tasks' samples as they come: their losses; and inputs and answers, at one rate together.

    Args:
        answers: what the reference's outputs were made with; classes mean different things, and are not told apart.
    """

    def label_free(reference: Reference, asked: Asked) -> Made:
        spec, arrays = _label_free(replace(reference, classes=None, said=NAMES), asked)
        return spec, {**arrays, **answers.to_arrays()}

    return (*LABELLED_MAKERS, Maker(LABEL_FREE, _task_scores, label_free, least_batches=EFFECTIVE_LEAST))
