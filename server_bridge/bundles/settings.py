"""What a bundle is built with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_agent.wire.manifest import LabelFreeLossName, LossName, OptimiserName
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT
from server_bridge.bundles.gradients.batch_statistics import Statistics
from server_bridge.bundles.gradients.losses import Objective
from server_bridge.bundles.gradients.optimisers import OPTIMISERS


@dataclass(frozen=True)
class BuildSettings:
    """What a model does not say of itself.

    Args:
        trainable: shell patterns of initialiser names; ``!`` excludes.
        loss: ``cross-entropy`` (classification) or ``mse`` (regression).
        name: the bundle's.
        monitor_batch: labelled samples a batch of the drift monitor.
        label_names: of the classes, for people.
        seed: of the calibration's resampling.
        statistics: of batch normalisation in training: ``frozen``, or the ``batch``'s own, where the running ones are
            renewed, travel with the weights, and need not be left out of ``trainable``.
        optimisers: of which graphs are built.
        subsets: patterns of trainable tensors by the name of the subset, whose graphs are ``<name>-<optimiser>``.
        label_free: objectives without labels, whose graphs are ``<objective>-<optimiser>``.
    """

    trainable: Sequence[str]
    loss: LossName
    name: str = "model"
    monitor_batch: int = BATCH_SIZE_DEFAULT
    label_names: Sequence[str] = ()
    seed: int = 0
    statistics: Statistics = "frozen"
    optimisers: Sequence[OptimiserName] = tuple(OPTIMISERS)
    subsets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    label_free: Sequence[LabelFreeLossName] = ()

    def objective(self) -> Objective:
        """The loss with its options."""
        return Objective(self.loss)
