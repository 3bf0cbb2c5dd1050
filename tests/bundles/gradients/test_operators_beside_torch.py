"""Each operator's gradients in a training graph beside torch's: as close to float64 as twice torch's own float32."""

from typing import Any

import numpy as np
import onnx
import pytest

from server_bridge.bundles.gradients.rules import RULES
from tests.bundles.gradients.cases import Case, assembled
from tests.bundles.gradients.differences import Array, Stepper
from tests.bundles.gradients.test_rules import CASES
from tests.bundles.nets import initialisers

pytestmark = pytest.mark.oracle

ELSEWHERE = {
    "Conv": "test_convolution",
    "ConvTranspose": "test_transposed_convolution",
    "MaxPool": "test_pooling",
    "AveragePool": "test_pooling",
    "GlobalMaxPool": "test_pooling",
    "GlobalAveragePool": "test_pooling",
    "BatchNormalization": "test_batch_statistics",
    "LayerNormalization": "test_normalisation",
    "InstanceNormalization": "test_normalisation",
    "GroupNormalization": "test_normalisation",
    "Resize": "test_rules",
}
"""Twins of their own; of ``Resize``, most of whose ways torch does not have, central differences alone."""
BATCHES = (1, 5, 17)
LARGEST_ERROR = 2e-5
RESOLUTION, TINY = 2.4e-7, 1e-30
DRAWS = 8
MOST_BY_TANH = 3.5
"""onnxruntime's Tanh is a rational function, off by a few units in the last place (1.32): in serving as in training."""
NEVER_ALONE = {"squeeze by no axes"}
"""At a batch of one it takes the batch away, too."""
HERE = [case for case in CASES if not {made.op_type for made in case.nodes} & ELSEWHERE.keys()]


def one_an_operator() -> list[str]:
    """The first case of each; the others are long."""
    seen: set[str] = set()
    names = []
    for case in HERE:
        operators = {made.op_type for made in case.nodes}
        if operators - seen:
            names.append(case.name)
        seen |= operators
    return names


@pytest.mark.parametrize("name", one_an_operator())
def test_operator_is_as_close_as_twice_torchs_own(name: str) -> None:
    check(next(case for case in HERE if case.name == name))


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in HERE if case.name not in one_an_operator()], ids=lambda c: c.name)
def test_case_is_as_close_as_twice_torchs_own(case: Case) -> None:
    check(case)


def test_every_rule_is_compared_with_torch() -> None:
    here = {made.op_type for case in HERE for made in case.nodes}
    assert RULES.keys() - here == ELSEWHERE.keys()


def check(case: Case) -> None:
    """Every batch: no element off by more than 2e-5 of its tensor's largest, all together within twice torch's own.

    Where a softmax is as good as sure its gradient is a difference of near equals, to torch as well: twice that, then.
    Of a few dozen values one draw's rounding is chance, torch's as well: the L2 errors are of `DRAWS` inputs together.
    """
    model, trainable, _, _ = assembled(case)
    stepper = Stepper(model, trainable, "cross-entropy")
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    for rows in BATCHES:
        if rows == 1 and case.name in NEVER_ALONE:
            continue
        draws = [drawn(case, rows, classes, number) for number in range(DRAWS)]
        found = stacked([stepper.gradients(x, labels)[1] for x, labels in draws])
        exact, narrow = (
            stacked([by_torch(model, trainable, x, labels, wide) for x, labels in draws])
            for wide in ("float64", "float32")
        )
        for name in trainable:
            largest, own = np.abs(exact[name]).max(), np.abs(narrow[name] - exact[name]).max()
            atol = max(LARGEST_ERROR * largest, 2 * own)
            np.testing.assert_allclose(found[name], exact[name], rtol=0, atol=atol, err_msg=name)
        ratio = length(found, exact) / max(length(narrow, exact), RESOLUTION / 2 * length(exact), TINY)
        assert ratio <= (MOST_BY_TANH if has_tanh(case) else 2), (rows, ratio)


def drawn(case: Case, rows: int, classes: int, number: int) -> tuple[Array, Array]:
    """A batch."""
    rng = np.random.default_rng([rows, number])
    return rng.normal(size=(rows, *case.shape)).astype(np.float32), rng.integers(0, classes, rows)


def stacked(draws: list[dict[str, Array]]) -> dict[str, Array]:
    """Gradients of all draws by tensor."""
    return {name: np.stack([one[name] for one in draws]) for name in draws[0]}


def has_tanh(case: Case) -> bool:
    """Whether a hyperbolic tangent is computed."""
    return any(made.op_type == "Tanh" or any(given.s == b"tanh" for given in made.attribute) for made in case.nodes)


def by_torch(model: onnx.ModelProto, trainable: list[str], x: Array, labels: Array, wide: str) -> dict[str, Array]:
    """Gradients of the mean cross-entropy."""
    import torch

    from tests.bundles.gradients.torch_graph import run

    dtype = getattr(torch, wide)
    values: dict[str, Any] = {}
    for name, value in initialisers(model).items():
        tensor = torch.tensor(value)
        values[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    leaves = {name: values[name].requires_grad_() for name in trainable}
    values["x"] = torch.tensor(x, dtype=dtype)
    output = run(list(model.graph.node), values, dtype)["y"]
    torch.nn.functional.cross_entropy(output, torch.tensor(labels)).backward()  # type: ignore[no-untyped-call]
    return {name: leaf.grad.numpy() for name, leaf in leaves.items()}


def length(found: dict[str, Array], exact: dict[str, Array] | None = None) -> float:
    """L2, over all tensors, of what is found or of how far it is from the exact."""
    base = exact or {name: np.zeros_like(value) for name, value in found.items()}
    return float(np.sqrt(sum(np.square(value.astype("f8") - base[name]).sum() for name, value in found.items())))
