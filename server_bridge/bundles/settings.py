"""What a bundle is built with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_agent.wire.manifest import FeatureSpec, LabelFreeLossName, LossName, OptimiserName
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT
from server_bridge.bundles.gradients.batch_statistics import Statistics
from server_bridge.bundles.gradients.losses import Weighing
from server_bridge.bundles.gradients.objective import HUBER_DELTA, Objective
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.wish import Wish


@dataclass(frozen=True)
class BuildSettings:
    """What a model does not say of itself.

    Args:
        trainable: shell patterns of initialiser names; ``!`` excludes.
        loss: of a classification ``cross-entropy`` or ``binary-cross-entropy``, of a regression ``mse``, ``mae`` or
            ``huber``.
        name: the bundle's.
        monitor_batch: labelled samples a batch of the drift monitor.
        label_names: of the classes, for people.
        seed: of the calibration's resampling.
        statistics: of batch normalisation in training: ``frozen``, or the ``batch``'s own, where the running ones are
            renewed, travel with the weights, and need not be left out of ``trainable``.
        optimisers: of which graphs are built.
        subsets: patterns of trainable tensors by the name of the subset, whose graphs are ``<name>-<optimiser>``.
        label_free: objectives without labels, whose graphs are ``<objective>-<optimiser>``.
        head: whether graphs that train the head alone, on cached embeddings, are built: ``head-<optimiser>``.
        embedding: the value under the head; None: what the last dense layer reads.
        class_weights: one a class, of a classification's training; empty: all equal.
        label_smoothing: the share of a label that goes to all classes alike in training, in [0, 1).
        ignore_index: a label whose samples count for nothing in training.
        run_time_weights: whether class weights are an input of the training graphs, ``class_weight``, instead.
        huber_delta: where Huber's loss turns from a parabola to a line.
        weight_decay: whether sgd, momentum and adam have the scalar ``weight_decay`` too.
        proximal: whether graphs with the proximal term of FedProx are built beside: ``prox-<optimiser>`` and
            ``prox-<subset>-<optimiser>``.
        personal: patterns of trainable tensors whose values every gateway has for itself.
        wish: how many false alarms the bundle's monitors may give.
        features: of the inputs' values, in order, for people and for limits; empty: they are numbered.
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
    head: bool = False
    embedding: str | None = None
    class_weights: Sequence[float] = ()
    label_smoothing: float = 0.0
    ignore_index: int | None = None
    run_time_weights: bool = False
    huber_delta: float = HUBER_DELTA
    weight_decay: bool = False
    proximal: bool = False
    personal: Sequence[str] = ()
    wish: Wish = field(default_factory=Wish)
    features: Sequence[FeatureSpec] = ()

    def objective(self) -> Objective:
        """The loss with its options.

        Raises:
            DataError: an option that the loss does not have, or a value that it cannot take (named).
        """
        weighing = Weighing(tuple(self.class_weights), self.label_smoothing, self.ignore_index, self.run_time_weights)
        return Objective(self.loss, weighing, self.huber_delta)
