"""Which initialisers patterns choose from."""

import numpy as np
import onnx
import pytest

from server_bridge.bundles.checks import checked_model, trainable_names
from server_bridge.bundles.parameters import weight_names
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array
from tests.bundles.nets import cnn2d, model_of


def ones(*shape: int) -> Array:
    return np.ones(shape, dtype="f4")


def model_with(nodes: list[onnx.NodeProto], **tensors: Array) -> onnx.ModelProto:
    """From ``x`` (n, 4) to ``y``, with a weight before."""
    return model_of([node("MatMul", "x w", "h"), *nodes], {"w": ones(4, 4), **tensors}, shape=[4], output=[4])


CONSTANTS = {
    "a scalar": ([node("Mul", "h k", "y")], {"k": ones()}),
    "a single number in arithmetic": ([node("Div", "h k", "y")], {"k": ones(1)}),
    "an epsilon": ([node("Mul", "h h", "q"), node("Add", "q k", "y")], {"k": ones(1)}),
    "bounds": ([node("Clip", "h k l", "y")], {"k": ones(), "l": ones()}),
    "an exponent": ([node("Pow", "h k", "y")], {"k": 2 * ones(1)}),
    "a padding value": ([node("Pad", "h p k", "y")], {"k": ones(), "p": ints(0, 0, 0, 0)}),
    "a mask": ([node("Add", "h k", "y")], {"k": np.array([0, -3.4e38, 0, -3.4e38], dtype="f4")}),
    "the mask of window attention": ([node("Add", "h k", "y")], {"k": np.array([0, -100, 0, -100], dtype="f4")}),
    "what values are standardised by": (
        [node("Sub", "h k", "c"), node("Div", "c l", "y")],
        {"k": 3 * ones(4), "l": 2 * ones(4)},
    ),
    "what inputs are standardised by": (
        [node("Sub", "x k", "c"), node("Mul", "c l", "d"), node("Add", "h d", "y")],
        {"k": 3 * ones(4), "l": 2 * ones(4)},
    ),
    "what inputs are scaled to a range by": (
        [node("Cast", "x", "c", to=1), node("Mul", "c k", "d"), node("Add", "d l", "e"), node("Add", "h e", "y")],
        {"k": 3 * ones(1, 4), "l": 2 * ones(1, 4)},
    ),
    "what inputs are centred by": ([node("Sub", "x k", "c"), node("Add", "h c", "y")], {"k": 3 * ones(4)}),
    "what is compared with": (
        [node("Expand", "k s", "e"), node("Greater", "h e", "c"), node("Where", "c h x", "y")],
        {"k": ones(1), "s": ints(1, 4)},
    ),
    "a scale of quantisation": (
        [node("QuantizeLinear", "h k z", "q", axis=1), node("DequantizeLinear", "q k z", "y", axis=1)],
        {"k": ones(4), "z": np.zeros(4, dtype="i1")},
    ),
    "a normalisation that has no scale of its own": (
        [node("Reshape", "h s", "r"), node("InstanceNormalization", "r k l", "q"), node("Reshape", "q t", "y")],
        {"k": ones(2), "l": np.zeros(2, dtype="f4"), "s": ints(0, 2, 2), "t": ints(0, 4)},
    ),
    "running statistics": ([node("BatchNormalization", "h a b k l", "y")], {n: ones(4) for n in "abkl"}),
}
WEIGHTS = {
    "a vector in arithmetic": ([node("Mul", "h k", "y")], {"k": ones(4)}),
    "a bias of one number": ([node("Add", "h k", "y")], {"k": ones(1)}),
    "a bias of one number after a cast": ([node("Cast", "h", "c", to=1), node("Add", "c k", "y")], {"k": ones(1)}),
    "a slope": ([node("PRelu", "h k", "y")], {"k": ones(1)}),
    "a scalar in a product's place too": ([node("Mul", "h k", "q"), node("Gemm", "q w k", "y")], {"k": ones(1)}),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_not_chosen_by_a_pattern(name: str) -> None:
    nodes, tensors = CONSTANTS[name]
    model = model_with(nodes, **tensors)
    assert not {"k", "l"} & set(weight_names(model))
    assert "w" in weight_names(model)
    assert "k" not in trainable_names(model, ["*"])
    assert "k" in trainable_names(model, ["*", "k"])


def test_batch_normalisation_written_in_arithmetic_has_scale_and_bias_but_no_mean() -> None:
    nodes = [node("Sub", "h m", "c"), node("Mul", "c s", "d"), node("Add", "d b", "y")]
    assert weight_names(model_with(nodes, m=ones(4), s=ones(4), b=ones(4))) == ["w", "s", "b"]


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("Sub", "h k", "c"), node("Mul", "c c", "y")], (4,)),
        ([node("Sub", "x k", "c"), node("ReduceL2", "c", "d", axes=[0]), node("Mul", "h d", "y")], (3, 1, 4)),
        ([node("Mul", "x k", "c"), node("Add", "c h", "y")], (4,)),
    ],
    ids=["centre", "centres of inputs", "gates of inputs"],
)
def test_what_only_looks_like_standardisation_is_a_weight(nodes: list[onnx.NodeProto], shape: tuple[int, ...]) -> None:
    assert weight_names(model_with(nodes, k=ones(*shape))) == ["w", "k"]


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are(name: str) -> None:
    nodes, tensors = WEIGHTS[name]
    assert weight_names(model_with(nodes, **tensors)) == ["w", "k"]


def test_whole_net_has_its_weights_and_nothing_else() -> None:
    assert trainable_names(cnn2d(), ["*"]) == ["a.w", "b.w", "b.b", "c.w", "c.b", "n.scale", "n.bias"]


def test_excluding_a_constant_is_no_error() -> None:
    assert "n.mean" not in trainable_names(cnn2d(), ["*", "!n.mean", "!n.var"])


def test_constants_in_nodes_are_no_weights_beside_initialisers() -> None:
    """torch writes a group normalisation as an instance normalisation by ones, and then its own scale."""
    nodes = [
        node("Constant", "", "ones", value=onnx.numpy_helper.from_array(ones(4))),
        node("Mul", "h ones", "q"),
        node("Mul", "q k", "y"),
    ]
    model = checked_model(model_with(nodes, k=ones(4)))
    assert trainable_names(model, ["*"]) == ["w", "k"]
    assert trainable_names(model, ["*", "ones"]) == ["w", "k", "ones"]
