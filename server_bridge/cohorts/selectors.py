"""Which tensors carry the drift signal, and how they become one vector."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Parameters = Mapping[str, NDArray[Any]]
Vector = NDArray[np.floating[Any]]

# Tracked statistics of BatchNorm in PyTorch and Keras: they follow the scale of the inputs, not what was learned.
BATCH_NORM_STATISTICS = (
    r"running_mean$",
    r"running_var$",
    r"num_batches_tracked$",
    r"moving_mean",
    r"moving_variance",
)


class ParamSelector(ABC):
    """Chooses the named tensors that are compared between clients."""

    @abstractmethod
    def select(self, params: Parameters) -> list[str]:
        """The names to use, in an order that depends on the names alone."""

    def flatten(self, params: Parameters) -> Vector:
        """The selected tensors as one vector.

        Args:
            params: named tensors of any shape.

        Returns:
            (d,) float32 if every selected tensor is float32, else float64.

        Raises:
            ValueError: nothing is selected.
        """
        names = self.select(params)
        if not names:
            raise ValueError(f"the selector {type(self).__name__} selects none of {sorted(params)[:10]}")
        tensors = [np.asarray(params[name]) for name in names]
        dtype = np.float32 if all(tensor.dtype == np.float32 for tensor in tensors) else np.float64
        return np.concatenate([tensor.astype(dtype, copy=False).reshape(-1) for tensor in tensors])


class AllParams(ParamSelector):
    """Every tensor, as in the paper."""

    def select(self, params: Parameters) -> list[str]:
        """Every name, in the order given."""
        return list(params)


class NameFilter(ParamSelector):
    """Tensors by regular expressions on their names.

    Args:
        include: a name must match one of these; ``None`` for every name.
        exclude: a name that matches one of these is left out.
    """

    def __init__(self, include: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> None:
        self._include = None if include is None else [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def select(self, params: Parameters) -> list[str]:
        """The matching names, in the order given."""
        return [name for name in params if self._wanted(name)]

    def _wanted(self, name: str) -> bool:
        included = self._include is None or any(pattern.search(name) for pattern in self._include)
        return included and not any(pattern.search(name) for pattern in self._exclude)


class DefaultSelector(NameFilter):
    """Everything but the tracked statistics of BatchNorm."""

    def __init__(self, extra_exclude: Iterable[str] = ()) -> None:
        super().__init__(exclude=(*BATCH_NORM_STATISTICS, *extra_exclude))


class LastLayers(ParamSelector):
    """The last ``n`` tensors that are no tracked statistics.

    Args:
        n: how many tensors (a weight and its bias are two).
        exclude: names left out before counting.

    Raises:
        ValueError: ``n`` is below 1.
    """

    def __init__(self, n: int = 2, exclude: Iterable[str] = BATCH_NORM_STATISTICS) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        self.n = n
        self._filter = NameFilter(exclude=exclude)

    def select(self, params: Parameters) -> list[str]:
        """The last ``n`` names, in the order given."""
        return self._filter.select(params)[-self.n :]


class Moved(ParamSelector):
    """What another selector chooses, of the tensors that a round can move.

    A tensor that no gateway trains has a change of exactly zero everywhere: it says nothing of a drift, and its
    zeros would outweigh what was trained where distributions are compared.

    Args:
        selector: chooses first.
        names: of the tensors that a round's updates carry.
    """

    def __init__(self, selector: ParamSelector, names: Iterable[str]) -> None:
        self._selector = selector
        self._names = frozenset(names)

    def select(self, params: Parameters) -> list[str]:
        """Those chosen that can move, in the order of the other selector."""
        return [name for name in self._selector.select(params) if name in self._names]


class TrainableTensors(ParamSelector):
    """The tensors that a bundle's training graph moves.

    Args:
        names: as the training graph lists them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def select(self, params: Parameters) -> list[str]:
        """Those names that are there, in the bundle's order."""
        return [name for name in self._names if name in params]
