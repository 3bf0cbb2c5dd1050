"""What a training step is fed, checked: features, and labels as its graph takes them."""

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.features import InputCheck
from edge_agent.model.head import fed_inputs
from edge_agent.model.labels import LabelCheck
from edge_agent.wire.manifest import Manifest, TrainingGraphSpec
from edge_agent.wire.tasks import seen_by

Features = Mapping[str, NDArray[Any]]


class BatchCheck:
    """Checks batches for one training graph; what is as expected costs a few comparisons.

    Args:
        manifest: of the bundle.
        spec: of the graph.

    Raises:
        DataError: the graph wants an embedding that the inference graph does not give.
    """

    def __init__(self, manifest: Manifest, spec: TrainingGraphSpec) -> None:
        self._spec, self._inputs = spec, fed_inputs(manifest, spec)
        self.classes = seen_by(manifest, spec.task).classes
        self._check, self._check_labels = InputCheck(self._inputs), LabelCheck(spec, self.classes)

    @property
    def sample_values(self) -> int:
        """How many values a sample has, free dimensions counted as 1."""
        return sum(math.prod(size for size in spec.shape[1:] if isinstance(size, int)) for spec in self._inputs)

    def one(self, features: Features, labels: NDArray[Any] | None) -> NDArray[Any] | None:
        """The labels of a batch as the graph takes them; None: it takes none.

        Raises:
            DataError: features or labels are unfit (named).
        """
        size = self._check(features)
        if self._spec.label_input is None:
            if size < 1:
                raise DataError("the batch is empty")
            return None
        if labels is None:
            raise DataError(f"training graph {self._spec.name!r} needs labels")
        return self._check_labels(labels, size)

    def several(self, features: Features, labels: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
        """The labels of ``count`` batches of one size as the graph takes them, (count, n); None: it takes none.

        Args:
            features: (count, n, ...) each.
            labels: (count, n).

        Raises:
            DataError: features or labels are unfit (named).
        """
        for name, value in features.items():
            if value.ndim < 2 or len(value) != count or count == 0:
                raise DataError(f"input {name!r} has shape {list(value.shape)}, {count} batches of a size are needed")
        if labels is not None and (labels.ndim != 2 or len(labels) != count):
            raise DataError(f"labels have shape {list(labels.shape)}, {count} batches of a size are needed")
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in features.items()}
        checked = self.one(flat, None if labels is None else labels.reshape(-1))
        return None if checked is None else checked.reshape(count, -1)
