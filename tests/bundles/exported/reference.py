"""The same net in torch, with the exported file's tensors."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from tests.bundles.nets import initialisers

Array = NDArray[Any]


@dataclass(frozen=True)
class Tie:
    """An initialiser and the parameter that the exporter made it from.

    Args:
        parameter: its name in the net.
        turned: whether the exporter wrote it transposed.
    """

    parameter: str
    turned: bool


def ties(model: onnx.ModelProto, names: Sequence[str], net: Any) -> dict[str, Tie]:
    """Where each tensor comes from, found by its values: exporters rename, reshape and transpose.

    Raises:
        LookupError: a tensor is like no parameter.
    """
    given = initialisers(model)
    parameters = {name: parameter.detach().numpy() for name, parameter in net.named_parameters()}
    return {name: _tie(name, given[name], parameters) for name in names}


def _tie(name: str, value: Array, parameters: Mapping[str, Array]) -> Tie:
    for parameter, theirs in parameters.items():
        if theirs.size != value.size:
            continue
        if np.allclose(theirs.reshape(-1), value.reshape(-1), atol=1e-5):
            return Tie(parameter, False)
        if theirs.ndim == 2 and np.allclose(theirs.T.reshape(-1), value.reshape(-1), atol=1e-5):
            return Tie(parameter, True)
    raise LookupError(f"{name} {value.shape} is like none of {list(parameters)}")


class Reference:
    """A net in torch, in float32 or float64, that trains the tied tensors."""

    def __init__(self, net: Any, model: onnx.ModelProto, tied: Mapping[str, Tie], dtype: str, loss: str) -> None:
        torch.set_num_threads(1)
        self.net = copy.deepcopy(net).to(getattr(torch, dtype))
        self.dtype, self.loss = getattr(torch, dtype), loss
        parameters = dict(self.net.named_parameters())
        self.tied = {name: (parameters[tie.parameter], tie.turned) for name, tie in tied.items()}
        given = initialisers(model)
        with torch.no_grad():
            for name, (parameter, turned) in self.tied.items():
                parameter.copy_(_as(torch.tensor(given[name]), parameter, turned))
        for parameter in parameters.values():
            parameter.requires_grad_(any(parameter is ours for ours, _ in self.tied.values()))

    def backward(self, x: Array, labels: Array) -> float:
        """The loss; gradients are left in the parameters."""
        self.net.zero_grad()
        given = torch.tensor(x)
        found = self.net(given.to(self.dtype) if given.is_floating_point() else given)
        if self.loss == "mse":
            loss = torch.nn.functional.mse_loss(found[:, 0], torch.tensor(labels, dtype=self.dtype))
        else:
            loss = torch.nn.functional.cross_entropy(found, torch.tensor(labels))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return float(loss.detach())

    def gradients(self, shapes: Mapping[str, Array]) -> dict[str, Array]:
        """By initialiser, in its layout."""
        return {name: _back(parameter.grad, turned, shapes[name]) for name, (parameter, turned) in self.tied.items()}

    def weights(self, shapes: Mapping[str, Array]) -> dict[str, Array]:
        """By initialiser, in its layout."""
        return {
            name: _back(parameter.detach(), turned, shapes[name]) for name, (parameter, turned) in self.tied.items()
        }

    def train(self, optimiser: str, rate: float, batches: Sequence[tuple[Array, Array]]) -> None:
        """A step a batch."""
        trained = [parameter for parameter, _ in self.tied.values()]
        kinds: dict[str, Callable[[], Any]] = {
            "sgd": lambda: torch.optim.SGD(trained, rate),
            "momentum": lambda: torch.optim.SGD(trained, rate, momentum=0.9),
            "adam": lambda: torch.optim.Adam(trained, rate),
        }
        steps = kinds[optimiser]()
        for x, labels in batches:
            self.backward(x, labels)
            steps.step()


def distance(found: Mapping[str, Array], exact: Mapping[str, Array]) -> float:
    """The L2 norm of what differs, over all tensors."""
    return float(np.sqrt(sum(np.square(found[name].astype("f8") - value).sum() for name, value in exact.items())))


def _as(value: torch.Tensor, parameter: torch.Tensor, turned: bool) -> torch.Tensor:
    if turned:
        return value.reshape(parameter.shape[::-1]).T
    return value.reshape(parameter.shape)


def _back(value: Any, turned: bool, like: Array) -> Array:
    array: Array = value.numpy()
    return np.ascontiguousarray(array.T if turned else array).reshape(like.shape)
