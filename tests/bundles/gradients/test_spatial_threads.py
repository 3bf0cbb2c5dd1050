"""Convolution and pooling repeat bit for bit at 1, 2 and 4 threads, and write no operator that would not."""

from typing import Any

import numpy as np
import pytest

from tests.bundles.gradients.operator_twins import OperatorGraph, operator_model

REPEATS = 20

NODES: dict[str, tuple[str, tuple[int, ...], dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "conv by column": ("Conv", (8, 12, 12), {"w": (8, 8, 3, 3)}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "conv by tap": ("Conv", (16, 4, 4), {"w": (8, 16, 3, 3)}, {"pads": [1, 1, 1, 1]}),
    "conv by slices": ("Conv", (8, 60), {"w": (8, 8, 5)}, {"dilations": [2]}),
    "conv wide": ("Conv", (8, 4, 70), {"w": (8, 8, 3, 3)}, {"pads": [1, 1, 1, 1]}),
    "depthwise by pairs": ("Conv", (8, 8, 8), {"w": (8, 1, 3, 3)}, {"group": 8, "pads": [1, 1, 1, 1]}),
    "depthwise by rows": ("Conv", (8, 12, 12), {"w": (8, 1, 3, 3)}, {"group": 8, "pads": [1, 1, 1, 1]}),
    "depthwise by tap": ("Conv", (8, 90), {"w": (8, 1, 3)}, {"group": 8, "dilations": [4]}),
    "depthwise by products of slices": ("Conv", (3, 30, 40), {"w": (3, 1, 3, 3)}, {"group": 3}),
    "transposed conv": ("ConvTranspose", (8, 6, 6), {"w": (8, 4, 3, 3)}, {"strides": [2, 2]}),
    "max pool overlapping": ("MaxPool", (8, 15, 15), {}, {"kernel_shape": [3, 3], "strides": [1, 1]}),
    "max pool apart": ("MaxPool", (8, 16, 16), {}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "max pool to the ceiling": (
        "MaxPool",
        (8, 15, 15),
        {},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    ),
    "average pool overlapping": ("AveragePool", (8, 15, 15), {}, {"kernel_shape": [3, 3], "strides": [1, 1]}),
    "global max pool": ("GlobalMaxPool", (8, 9, 9), {}, {}),
}


def made(name: str, threads: int) -> tuple[OperatorGraph, Any]:
    """Values of few levels, so that equals are frequent: many windows point to one place."""
    operator, shape, tensors, attributes = NODES[name]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (16, *shape)).astype(np.float32)
    drawn = {key: rng.normal(size=size).astype(np.float32) for key, size in tensors.items()}
    return OperatorGraph(operator_model(operator, x, drawn, **attributes), ["x", *drawn], threads=threads), x


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_repeats_bit_for_bit(name: str, threads: int) -> None:
    graph, x = made(name, threads)
    upstream = np.random.default_rng(1).normal(size=graph.output_shape(x)).astype(np.float32)
    runs = [graph.run(x, upstream) for _ in range(REPEATS)]
    for key, value in runs[0].items():
        assert {run[key].tobytes() for run in runs} == {value.tobytes()}, key


@pytest.mark.parametrize("name", NODES)
def test_no_graph_scatters_slices(name: str) -> None:
    """ScatterND's add races on repeated indices."""
    graph, _ = made(name, 1)
    assert "ScatterND" not in {node.op_type for node in graph.nodes}


@pytest.mark.parametrize("name", [name for name in NODES if name.startswith("max pool")])
def test_repeated_indices_add_up_as_numpy_does(name: str) -> None:
    """What every window gives comes to one place: the sums of the gradient are those of the upstream one."""
    graph, x = made(name, 4)
    upstream = np.random.default_rng(1).normal(size=graph.output_shape(x)).astype(np.float32)
    found = graph.run(x, upstream)["x"].astype(np.float64)
    np.testing.assert_allclose(found.sum((2, 3)), upstream.astype(np.float64).sum((2, 3)), rtol=0, atol=1e-4)
