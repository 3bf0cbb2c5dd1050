"""From an order to a job: what the bridge asks, within what the operator allows."""

from dataclasses import dataclass

from edge_agent.config import TrainingSection
from edge_agent.drift.label_shift import LABEL_SHIFT_KEY
from edge_agent.training.job import Job, Lineage, TrainingJob, WorkerLimits
from edge_agent.training.split_half import SPLIT_HALF_KEY
from edge_agent.wire.messages import Train

REHEARSAL_KEY = "clma-rehearsal"  # in an order's config: the share of the training set that is old
BALANCED_KEY = "clma-balanced"  # in an order's config: whether every class is taken alike
MOST_REHEARSED = 0.9


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """What holds whatever the bridge orders, and what holds where it does not say.

    Attributes:
        enabled: whether rounds may be trained at all.
        max_rounds_per_hour: further rounds are refused.
        min_classes: fewer different labels refuse a round.
        rehearsal_share, balanced: of a training set, where the order does not say.
        error_feedback: whether what the coding of an update lost is added to the next.
    """

    enabled: bool
    min_samples: int
    max_rounds_per_hour: int
    max_duration_s: float
    worker: WorkerLimits
    min_classes: int = 1
    rehearsal_share: float = 0.0
    balanced: bool = False
    error_feedback: bool = True


def operator_limits(section: TrainingSection) -> OperatorLimits:
    """What holds whatever the bridge orders."""
    return OperatorLimits(
        enabled=section.enabled,
        min_samples=section.min_samples,
        max_rounds_per_hour=section.max_rounds_per_hour,
        max_duration_s=section.max_duration_s,
        worker=WorkerLimits(nice=section.nice, address_space_bytes=section.memory_bytes, scheduling=section.scheduling),
        min_classes=section.min_classes,
        rehearsal_share=section.rehearsal_share,
        balanced=section.balanced,
        error_feedback=section.error_feedback,
    )


def training_job(common: Job, action: Train, limits: OperatorLimits, *, from_sample: str | None) -> TrainingJob:
    """The job of a train order.

    Args:
        common: what both kinds of work need.
        from_sample: the first sample that training may read; None: all.
    """
    return TrainingJob(
        **dict(common),
        training_graph=action.training_graph,
        from_sample=from_sample,
        learning_rate=action.learning_rate,
        epochs=action.epochs,
        batch_size=action.batch_size,
        min_samples=max(action.min_samples, limits.min_samples),
        min_classes=limits.min_classes,
        seed=action.seed,
        coding=action.coding,
        split_half=bool(action.config.get(SPLIT_HALF_KEY, False)),
        scalars=action.scalars,
        schedule=action.schedule,
        learning_rate_min=action.learning_rate_min,
        task=action.task,
        send_worse=action.send_worse,
        label_shift=bool(action.config.get(LABEL_SHIFT_KEY, False)),
        rehearsal_share=_share(action, limits),
        balanced=bool(action.config.get(BALANCED_KEY, limits.balanced)),
        lineage=lineage(action) if limits.error_feedback else None,
    )


def lineage(action: Train) -> Lineage:
    """The line of rounds that an order belongs to."""
    return Lineage(
        bundle=action.bundle,
        training_graph=action.training_graph,
        task=action.task,
        adaptation=action.adaptation,
        cohort=action.cohort,
        round=action.round,
    )


def _share(action: Train, limits: OperatorLimits) -> float:
    """What is no number in range is as if it were not said."""
    asked = action.config.get(REHEARSAL_KEY)
    if isinstance(asked, int | float) and 0 <= asked <= MOST_REHEARSED:
        return float(asked)
    return limits.rehearsal_share
