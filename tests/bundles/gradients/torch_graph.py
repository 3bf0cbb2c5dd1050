"""A graph of operators in torch, so that autograd differentiates what the rules differentiate.

Of the operators that work on places (convolution, pooling, resampling) and the normalisations the twins stand in tests
of their own; all others are here.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

Tensor = Any
Attributes = Mapping[str, Any]
Operator = Callable[..., Any]
F = torch.nn.functional


def run(nodes: Sequence[onnx.NodeProto], values: dict[str, Tensor], wide: torch.dtype) -> dict[str, Tensor]:
    """Every value of the graph; floats are of the type ``wide``.

    Args:
        nodes: in order.
        values: inputs and tensors by name.
        wide: float32, or float64 for the exact gradients; casts between floats are left out.
    """
    for made in nodes:
        attributes = {given.name: helper.get_attribute_value(given) for given in made.attribute} | {"wide": wide}
        attributes["outputs"] = len(made.output)
        inputs = [values[name] if name else None for name in made.input]
        found = OPERATORS[made.op_type](attributes, *inputs)
        results = found if isinstance(found, tuple) else (found,)
        values |= {name: result for name, result in zip(made.output, results, strict=False) if name}
    return values


def _numbers(value: Tensor) -> list[int]:
    return [int(each) for each in value.reshape(-1)]


def _axes(a: Attributes, x: Tensor, axes: Tensor) -> list[int]:
    """Of a reduction or a squeeze: an attribute or an input; none: all, or none of them if it says so."""
    given = _numbers(axes) if axes is not None else list(a.get("axes", []))
    if given:
        return [axis % x.ndim for axis in given]
    return [] if a.get("noop_with_empty_axes") else list(range(x.ndim))


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    def reduce(a: Attributes, x: Tensor, axes: Tensor = None) -> Tensor:
        over = _axes(a, x, axes)
        return function(x, over, bool(a.get("keepdims", 1))) if over else x

    return reduce


def _clip(a: Attributes, x: Tensor, low: Tensor = None, high: Tensor = None) -> Tensor:
    return torch.clamp(x, low, high)


def _gemm(a: Attributes, x: Tensor, w: Tensor, b: Tensor = None) -> Tensor:
    left, right = (x.T if a.get("transA") else x), (w.T if a.get("transB") else w)
    product = a.get("alpha", 1.0) * (left @ right)
    return product if b is None else product + a.get("beta", 1.0) * b


def _gather(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a.get("axis", 0) % x.ndim
    flat = torch.remainder(indices, x.shape[axis]).reshape(-1)
    return x.index_select(axis, flat).reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _gather_elements(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a.get("axis", 0) % x.ndim
    kept = x[tuple(slice(0, size) for size in indices.shape[:axis])]
    return torch.gather(kept, axis, torch.remainder(indices, x.shape[axis]))


def _gather_nd(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    return x[tuple(indices[..., column] for column in range(indices.shape[-1]))]


def _picked(x: Tensor, axis: int, rows: Any) -> Tensor:
    return x.index_select(axis, torch.tensor(np.asarray(rows, np.int64).copy()))


def _slice(a: Attributes, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor = None, steps: Tensor = None) -> Tensor:
    first, last = _numbers(starts), _numbers(ends)
    over = _numbers(axes) if axes is not None else list(range(len(first)))
    by = _numbers(steps) if steps is not None else [1] * len(first)
    for start, end, axis, step in zip(first, last, over, by, strict=True):
        size = x.shape[axis]
        stop: int | None = end if end >= -size or step > 0 else None
        x = _picked(x, axis % x.ndim, np.arange(size)[start:stop:step])
    return x


def _split(a: Attributes, x: Tensor, sizes: Tensor = None) -> tuple[Tensor, ...]:
    axis = a.get("axis", 0) % x.ndim
    part = -(-x.shape[axis] // a["outputs"])
    return tuple(torch.split(x, part if sizes is None else _numbers(sizes), axis))


def _pad(a: Attributes, x: Tensor, pads: Tensor, value: Tensor = None, axes: Tensor = None) -> Tensor:
    mode = a.get("mode", b"constant").decode()
    over = [axis % x.ndim for axis in (_numbers(axes) if axes is not None else range(x.ndim))]
    widths = _numbers(pads)
    for number, axis in enumerate(over):
        before, after = widths[number], widths[number + len(over)]
        if mode == "constant":
            shape = [(before, after) if other == axis else (0, 0) for other in reversed(range(x.ndim))]
            x = F.pad(x, [width for pair in shape for width in pair])
        elif before or after:
            rows = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)
            x = _picked(x, axis, rows)
    return x


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape([x.shape[place] if size == 0 else size for place, size in enumerate(_numbers(shape))])


def _squeeze(a: Attributes, x: Tensor, axes: Tensor = None) -> Tensor:
    over = [axis for axis in _axes(a, x, axes) if axes is not None or "axes" in a or x.shape[axis] == 1]
    return x.squeeze(tuple(over))


def _unsqueeze(a: Attributes, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.ndim + axes.numel()
    for axis in sorted(axis % rank for axis in _numbers(axes)):
        x = x.unsqueeze(axis)
    return x


def _blocks(a: Attributes, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = a["blocksize"]
    if a.get("mode", b"DCR") == b"CRD":
        return x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)
    return x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def _unblocked(a: Attributes, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = a["blocksize"]
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


def _cumsum(a: Attributes, x: Tensor, axis: Tensor) -> Tensor:
    over = int(axis)
    turned = x.flip(over) if a.get("reverse") else x
    summed = turned.cumsum(over)
    summed = summed - turned if a.get("exclusive") else summed
    return summed.flip(over) if a.get("reverse") else summed


def _cast(a: Attributes, x: Tensor) -> Tensor:
    return x.to(a["wide"]) if a["to"] in (TensorProto.FLOAT, TensorProto.DOUBLE) else x.to(torch.int64)


def _flatten(a: Attributes, x: Tensor) -> Tensor:
    axis = a.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def _shape(a: Attributes, x: Tensor) -> Tensor:
    return torch.tensor(list(x.shape)[a.get("start", 0) : a.get("end")])


def _selu(a: Attributes, x: Tensor) -> Tensor:
    alpha, gamma = a.get("alpha", 1.6732632423543772), a.get("gamma", 1.0507009873554805)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(torch.clamp(x, max=0)))


def _expand(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(_numbers(shape))))


def _constant(a: Attributes) -> Tensor:
    value = torch.tensor(numpy_helper.to_array(a["value"]))
    return value.to(a["wide"]) if value.is_floating_point() else value


def _unary(function: Callable[[Tensor], Tensor]) -> Operator:
    return lambda a, x: function(x)


def _several(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda a, *x: functools.reduce(function, x)


OPERATORS: dict[str, Operator] = {
    **{name: _unary(getattr(torch, name.lower())) for name in ("Abs", "Exp", "Log", "Sqrt", "Sin", "Cos", "Erf")},
    **{
        name: _unary(getattr(torch, name.lower())) for name in ("Neg", "Reciprocal", "Floor", "Sigmoid", "Tanh", "Relu")
    },
    "Identity": _unary(lambda x: x),
    "Dropout": _unary(lambda x: x),
    "Softplus": _unary(F.softplus),
    "Softsign": _unary(F.softsign),
    "HardSwish": _unary(F.hardswish),
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Selu": _selu,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "PRelu": lambda a, x, slope: torch.where(x > 0, x, slope * x),
    "HardSigmoid": lambda a, x: torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", b"none").decode()),
    "Clip": _clip,
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "LogSoftmax": lambda a, x: torch.log_softmax(x, a.get("axis", -1)),
    "Add": _several(torch.add),
    "Sum": _several(torch.add),
    "Sub": _several(torch.sub),
    "Mul": _several(torch.mul),
    "Div": _several(torch.div),
    "Max": _several(torch.maximum),
    "Min": _several(torch.minimum),
    "Mean": lambda a, *x: functools.reduce(torch.add, x) / len(x),
    "Pow": lambda a, x, power: torch.pow(x, power),
    "Greater": lambda a, x, y: x > y,
    "Where": lambda a, c, x, y: torch.where(c, x, y),
    "MatMul": lambda a, x, y: x @ y,
    "Gemm": _gemm,
    "Einsum": lambda a, *x: torch.einsum(a["equation"].decode(), *x),
    "ReduceSum": _reduced(lambda x, axes, keep: x.sum(axes, keep)),
    "ReduceMean": _reduced(lambda x, axes, keep: x.mean(axes, keep)),
    "ReduceMax": _reduced(lambda x, axes, keep: x.amax(axes, keep)),
    "ReduceMin": _reduced(lambda x, axes, keep: x.amin(axes, keep)),
    "ReduceL1": _reduced(lambda x, axes, keep: x.abs().sum(axes, keep)),
    "ReduceL2": _reduced(lambda x, axes, keep: x.square().sum(axes, keep).sqrt()),
    "ReduceSumSquare": _reduced(lambda x, axes, keep: x.square().sum(axes, keep)),
    "ReduceLogSumExp": _reduced(lambda x, axes, keep: torch.logsumexp(x, axes, keep)),
    "CumSum": _cumsum,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Slice": _slice,
    "Split": _split,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Pad": _pad,
    "Expand": _expand,
    "Tile": lambda a, x, repeats: x.tile(_numbers(repeats)),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": lambda a, x: x.permute(tuple(a.get("perm", reversed(range(x.ndim))))),
    "Trilu": lambda a, x, k: (torch.triu if a.get("upper", 1) else torch.tril)(x, int(k)),
    "DepthToSpace": _blocks,
    "SpaceToDepth": _unblocked,
    "Cast": _cast,
    "Shape": _shape,
    "Constant": _constant,
}
