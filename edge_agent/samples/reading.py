"""Reading stored samples; also from the training worker's process, so that the parent copies nothing."""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from edge_agent.link.database import Database, open_read_only
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.record import FeatureSet, SampleSet
from edge_agent.samples.segments import SegmentGone, Segments
from edge_agent.samples.selection import NEWEST, Mixture
from edge_agent.samples.view import View
from edge_agent.wire.manifest import TensorSpec

LOOKS = 5
"""So often the store is looked at again, if the agent removed a file of features meanwhile."""
_Found = TypeVar("_Found")
_log = logging.getLogger(__name__)


def read_training_set(
    path: Path,
    inputs: Sequence[TensorSpec],
    *,
    from_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """The newest labelled samples of the train part, and older ones from the reservoir if the mixture asks.

    Args:
        path: the store's file, perhaps in use by the agent.
        inputs: the model's; samples stored for other inputs are left out.
        from_sample: only that sample and those inserted after it, and from the reservoir only what is older; None:
            all. One that the store does not know gives none: better nothing than samples from before the drift.
        limit: at most so many.
        task: only samples of that task; None: of all.
        mixture: how much of the past goes with the newest, and whether the classes are balanced.

    Raises:
        StorageError: the file cannot be read.
    """
    return _viewed(
        path,
        inputs,
        lambda view: view.training_set(from_sample=from_sample, limit=limit, task=task, mixture=mixture),
    )


def read_evaluation_set(
    path: Path,
    inputs: Sequence[TensorSpec],
    *,
    since_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """The newest labelled holdout samples; if there is none, those of the proof part.

    If the mixture rehearses, older ones of the proof part go with them: what is rehearsed should not be forgotten.

    Args and raises: as :func:`read_training_set`.
    """
    mixture = replace(mixture, balanced=False)
    return _viewed(
        path,
        inputs,
        lambda view: view.evaluation_set(since_sample=since_sample, limit=limit, task=task, mixture=mixture),
    )


def read_feature_set(
    path: Path,
    inputs: Sequence[TensorSpec],
    *,
    from_sample: str | None,
    limit: int,
    task: str | None = None,
    after: str | None = None,
) -> FeatureSet:
    """The newest samples of the train part whether or not they have labels, for objectives that need none.

    Args and raises: as :func:`read_training_set`.

    Args:
        after: only samples inserted after that one; one that has left the store left it before all that are recent.
    """

    def read(view: View) -> FeatureSet:
        return view.feature_set(from_sample=from_sample, limit=limit, task=task, after=after)

    return _viewed(path, inputs, read)


def is_known(path: Path, inputs: Sequence[TensorSpec], sample_id: str) -> bool:
    """Whether the store can tell which samples came after this one; one that it has evicted came before all others.

    Raises:
        StorageError: the file cannot be read.
    """
    return _viewed(path, inputs, lambda view: view.knows(sample_id))


def _viewed(path: Path, inputs: Sequence[TensorSpec], read: Callable[[View], _Found]) -> _Found:
    """Read one consistent view; again, if what it refers to was removed while it was read."""
    layout, segments = FeatureLayout(inputs), Segments(path)
    with closing(open_read_only(path)) as db:
        for _ in range(LOOKS):
            try:
                return _once(db, layout, segments, read)
            except SegmentGone as error:
                _log.info("the store is read again: %s", error)
        with db.transaction():
            return read(View(db, layout, segments, absent_is_spoilt=True))


def _once(db: Database, layout: FeatureLayout, segments: Segments, read: Callable[[View], _Found]) -> _Found:
    with db.transaction():
        return read(View(db, layout, segments))
