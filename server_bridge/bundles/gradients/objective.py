"""What a training graph minimises, and what it is fed for that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LabelFreeLossName, LossName
from server_bridge.bundles.gradients.forward import Forward, Shape
from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.label_free import (
    CLASS_PRIOR,
    CONFIDENCE,
    CONFIDENCE_DEFAULT,
    DIVERSITY,
    DIVERSITY_DEFAULT,
    entropy,
    pseudo_label,
)
from server_bridge.bundles.gradients.losses import (
    CLASS_WEIGHT,
    LABEL,
    Gradient,
    Weighing,
    binary_cross_entropy,
    cross_entropy,
    huber,
    mean_absolute_error,
    mean_squared_error,
)

HUBER_DELTA = 1.0
_CLASSIFIERS = ("cross-entropy", "binary-cross-entropy")
LABEL_FREE: tuple[LabelFreeLossName, ...] = ("entropy", "pseudo-label")


@dataclass(frozen=True)
class Objective:
    """A loss and its options.

    Args:
        loss: by name.
        weighing: of the samples of a classification.
        huber_delta: where Huber's loss turns from a parabola to a line.

    Raises:
        DataError: an option that the loss does not have, or a value that it cannot take (named).
    """

    loss: LossName | LabelFreeLossName
    weighing: Weighing = field(default_factory=Weighing)
    huber_delta: float = HUBER_DELTA

    def __post_init__(self) -> None:
        if not self.weighing.plain and self.loss not in _CLASSIFIERS:
            raise DataError(
                f"the loss {self.loss!r} takes no class weights, label smoothing or ignored label",
                f"they belong to {' and '.join(_CLASSIFIERS)}",
            )
        _refuse_weighing(self.weighing)
        delta = _as_float32(self.huber_delta)
        if not (np.isfinite(delta) and delta > 0):
            raise DataError(f"Huber's delta {self.huber_delta} is not positive and finite as float32")

    @property
    def label_type(self) -> int | None:
        """The ONNX element type of the labels; None: there are none."""
        if self.loss in LABEL_FREE:
            return None
        return int(TensorProto.INT64 if self.loss in _CLASSIFIERS else TensorProto.FLOAT)

    @property
    def class_inputs(self) -> Sequence[str]:
        """Graph inputs (classes,)."""
        if self.loss in LABEL_FREE:
            return (CLASS_PRIOR,)
        return (CLASS_WEIGHT,) if self.weighing.weights_at_run_time else ()

    @property
    def scalars(self) -> Mapping[str, float]:
        """Scalar graph inputs, and what they are where nobody sets them."""
        if self.loss == "entropy":
            return {DIVERSITY: DIVERSITY_DEFAULT}
        return {CONFIDENCE: CONFIDENCE_DEFAULT} if self.loss == "pseudo-label" else {}


def trained_value(forward: Forward, output: str, objective: Objective) -> str:
    """Where the loss attaches: the output, or the logits under its LogSoftmax."""
    producer = forward.producer(output)
    softmaxed = objective.loss in ("cross-entropy", *LABEL_FREE)
    if softmaxed and producer is not None and producer.op_type == "LogSoftmax":
        return str(producer.input[0])
    return output


def write_objective(graph: GraphBuilder, forward: Forward, value: str, objective: Objective) -> Gradient:
    """Write the objective of a value as ``loss``.

    Returns: the gradient with respect to the value.

    Raises:
        DataError: the value's shape does not suit the loss (named).
    """
    shape = forward.shape(value)
    if objective.loss in LABEL_FREE and _is_one_a_sample(shape):
        return _of_one_logit(graph, value, objective)
    if objective.loss in ("cross-entropy", *LABEL_FREE):
        return _of_logits(graph, value, _classes(value, shape, objective), objective)
    if not _is_one_a_sample(shape):
        raise unfit_shape(value, shape, objective.loss)
    if objective.loss == "binary-cross-entropy":
        refuse_ill_sized(objective, 2)
        return binary_cross_entropy(graph, value, LABEL, objective.weighing)
    if objective.loss == "mae":
        return mean_absolute_error(graph, value, LABEL)
    if objective.loss == "huber":
        return huber(graph, value, LABEL, objective.huber_delta)
    return mean_squared_error(graph, value, LABEL)


def unfit_shape(output: str, shape: Shape, loss: str) -> DataError:
    """The error that names an output whose shape does not suit a loss."""
    wanted = "(batch, classes)" if loss in ("cross-entropy", *LABEL_FREE) else "(batch,) or (batch, 1)"
    several = loss == "binary-cross-entropy" and len(shape) == 2 and shape[1] is not None
    hint = "several labels a sample are not supported; for one of several classes use cross-entropy" if several else ""
    return DataError(f"output {output!r} has shape {list(shape)}; {loss} needs {wanted}", hint)


def refuse_ill_sized(objective: Objective, classes: int | None) -> None:
    """Refuse class weights that are not one a class.

    Raises:
        DataError: their number is another.
    """
    given = len(objective.weighing.class_weights)
    if given and given != classes:
        raise DataError(f"{given} class weights are given, the model has {classes} classes", "give one a class")


def _is_one_a_sample(shape: Shape) -> bool:
    return len(shape) == 1 or shape[1:] == (1,)


def _of_one_logit(graph: GraphBuilder, logit: str, objective: Objective) -> Gradient:
    """A label-free objective of the two classes whose logits are (0, z)."""
    column = graph.emit("Reshape", logit, graph.integers([-1, 1]))
    pair = graph.emit("Concat", graph.emit("Mul", column, graph.scalar(0.0)), column, axis=1)
    gradient = _of_logits(graph, pair, 2, objective)
    second = graph.emit("Gather", gradient.name, graph.constant(np.array(1, dtype=np.int64)), axis=1)
    return Gradient(graph.reshape_like(second, logit), gradient.counted)


def _of_logits(graph: GraphBuilder, logits: str, classes: int, objective: Objective) -> Gradient:
    if objective.loss == "entropy":
        return entropy(graph, logits)
    if objective.loss == "pseudo-label":
        return pseudo_label(graph, logits, classes)
    refuse_ill_sized(objective, classes)
    return cross_entropy(graph, logits, LABEL, classes, objective.weighing)


def _classes(value: str, shape: Shape, objective: Objective) -> int:
    if len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise unfit_shape(value, shape, objective.loss)
    return shape[1]


def _refuse_weighing(weighing: Weighing) -> None:
    weights = _as_float32(weighing.class_weights)
    if len(weights) and not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise DataError("class weights must be finite and not negative, and one of them positive, as float32")
    if len(weights) and weighing.weights_at_run_time:
        raise DataError("class weights are either built in or given at run time, not both")
    if weighing.ignored is not None and not -(2**31) <= weighing.ignored < 2**31:
        raise DataError(f"the ignored label {weighing.ignored} is no 32-bit integer")
    if not 0 <= weighing.smoothing < 1:
        raise DataError(f"label smoothing {weighing.smoothing} is outside [0, 1)")


def _as_float32(values: float | Sequence[float]) -> NDArray[np.float32]:
    """As the graph holds them: what is too large for it is infinite, what is too small is zero."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=np.float64).astype(np.float32)
