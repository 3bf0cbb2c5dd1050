"""Where a slope is not defined, and where a function is flat or infinite: as torch has it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from tests.bundles.gradients.beside_torch import assert_as_torch
from tests.bundles.gradients.cases import ints, node
from tests.bundles.gradients.differences import Array

pytestmark = pytest.mark.oracle


def floats(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


@dataclass(frozen=True)
class Kink:
    """A node from ``a`` to ``z`` at odd places, and the same in torch."""

    name: str
    nodes: list[onnx.NodeProto]
    forward: Callable[[Any, dict[str, Any]], Any]
    at: dict[str, Array]
    frozen: dict[str, Array]


def kink(operator: str, forward: Callable[[Any, Any], Any], at: Array, **attributes: Any) -> Kink:
    drawn = node(operator, "a", **attributes)
    return Kink(operator, [drawn], lambda t, w: forward(t, w["a"]), {"a": at}, {})


AROUND = floats(-1, 0, 1)
FAR = floats(-1e4, -90, -20, 20, 90, 1e4)
KINKS = [
    kink("Abs", lambda t, a: a.abs(), AROUND),
    kink("Relu", lambda t, a: a.relu(), AROUND),
    kink("LeakyRelu", lambda t, a: t.nn.functional.leaky_relu(a, 0.2), AROUND, alpha=0.2),
    kink("Elu", lambda t, a: t.nn.functional.elu(a, 0.5), AROUND, alpha=0.5),
    kink("Selu", lambda t, a: t.nn.functional.selu(a), AROUND),
    kink("HardSigmoid", lambda t, a: t.nn.functional.hardsigmoid(a), floats(-4, -3, 0, 3, 4), alpha=1 / 6, beta=0.5),
    kink("HardSwish", lambda t, a: t.nn.functional.hardswish(a), floats(-4, -3, 0, 3, 4)),
    kink("Gelu", lambda t, a: t.nn.functional.gelu(a), np.concatenate((AROUND, FAR))),
    kink("Gelu", lambda t, a: t.nn.functional.gelu(a, approximate="tanh"), AROUND, approximate="tanh"),
    kink("Sigmoid", lambda t, a: a.sigmoid(), FAR),
    kink("Tanh", lambda t, a: a.tanh(), FAR),
    kink("Softplus", lambda t, a: t.nn.functional.softplus(a), FAR),
    kink("Softsign", lambda t, a: t.nn.functional.softsign(a), np.concatenate((AROUND, FAR))),
    kink("Erf", lambda t, a: a.erf(), FAR),
    Kink(
        "Clip at its bounds",
        [node("Clip", "a low high")],
        lambda t, w: w["a"].clamp(-1, 2),
        {"a": floats(-2, -1, 0, 2, 3)},
        {"low": np.array(-1, dtype="f4"), "high": np.array(2, dtype="f4")},
    ),
    Kink(
        "PRelu",
        [node("PRelu", "a b")],
        lambda t, w: t.nn.functional.prelu(w["a"], w["b"]),
        {"a": AROUND, "b": floats(0.3)},
        {},
    ),
    Kink(
        "Max of equals",
        [node("Max", "a b")],
        lambda t, w: t.maximum(w["a"], w["b"]),
        {"a": AROUND, "b": floats(0, 0, 0)},
        {},
    ),
    Kink(
        "Min of equals",
        [node("Min", "a b")],
        lambda t, w: t.minimum(w["a"], w["b"]),
        {"a": AROUND, "b": floats(0, 0, 0)},
        {},
    ),
    Kink(
        "ReduceMax of equals",
        [node("ReduceMax", "a x_")],
        lambda t, w: w["a"].amax(0, True),
        {"a": floats(1, 2, 2, 0, 2)},
        {"x_": ints(0)},
    ),
    Kink(
        "ReduceL2 of zeros",
        [node("ReduceL2", "a x_")],
        lambda t, w: w["a"].norm(2, 1, True),
        {"a": np.array([[0, 0], [3, 4]], dtype="f4")},
        {"x_": ints(1)},
    ),
    Kink(
        "Pow at 0 by 0",
        [node("Pow", "a b")],
        lambda t, w: w["a"] ** w["b"],
        {"a": floats(0, 0, 2), "b": floats(0, 2, 0)},
        {},
    ),
    Kink(
        "Pow of a negative",
        [node("Pow", "a two")],
        lambda t, w: w["a"] ** 2,
        {"a": AROUND},
        {"two": np.array(2, dtype="f4")},
    ),
]


@pytest.mark.parametrize("case", KINKS, ids=lambda case: case.name)
def test_slope_is_torchs(case: Kink) -> None:
    assert_as_torch(case.nodes, case.at, case.frozen, case.forward, np.random.default_rng(0))
