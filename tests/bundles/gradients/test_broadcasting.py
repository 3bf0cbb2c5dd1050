"""Gradients over shapes that nobody thought of, beside torch's in float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.bundles.gradients.beside_torch import assert_as_torch
from tests.bundles.gradients.cases import ints, node

pytestmark = pytest.mark.oracle

SIZES = st.integers(1, 4)
EXAMPLES = settings(max_examples=40, deadline=None)


@st.composite
def broadcast_pair(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, of ranks that may differ."""
    whole = draw(st.lists(SIZES, max_size=4))
    shapes = []
    for _ in range(2):
        cut = draw(st.integers(0, len(whole)))
        shapes.append(tuple(1 if draw(st.booleans()) else size for size in whole[cut:]))
    return shapes[0], shapes[1]


BINARY: dict[str, Any] = {
    "Add": lambda t, a, b: a + b,
    "Sub": lambda t, a, b: a - b,
    "Mul": lambda t, a, b: a * b,
    "Div": lambda t, a, b: a / b,
    "Max": lambda t, a, b: t.maximum(a, b),
    "Min": lambda t, a, b: t.minimum(a, b),
    "Pow": lambda t, a, b: a**b,
}


@EXAMPLES
@given(shapes=broadcast_pair(), operator=st.sampled_from(sorted(BINARY)), seed=st.integers(0, 2**16))
def test_arithmetic_broadcasts_any_shapes(shapes: tuple[tuple[int, ...], ...], operator: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (np.asarray(rng.uniform(0.5, 2, shape), dtype=np.float32) for shape in shapes)
    forward = BINARY[operator]
    assert_as_torch([node(operator, "a b")], {"a": a, "b": b}, {}, lambda t, w: forward(t, w["a"], w["b"]), rng)


@EXAMPLES
@given(
    lead=broadcast_pair(),
    sizes=st.tuples(SIZES, SIZES, SIZES),
    vectors=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**16),
)
def test_products_broadcast_leading_axes_and_take_vectors(
    lead: tuple[tuple[int, ...], ...], sizes: tuple[int, int, int], vectors: tuple[bool, bool], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, columns = sizes
    shape_a = (inner,) if vectors[0] else (*lead[0], rows, inner)
    shape_b = (inner,) if vectors[1] else (*lead[1], inner, columns)
    a, b = rng.normal(size=shape_a).astype("f4"), rng.normal(size=shape_b).astype("f4")
    assert_as_torch([node("MatMul", "a b")], {"a": a, "b": b}, {}, lambda t, w: t.matmul(w["a"], w["b"]), rng)


REDUCTIONS: dict[str, Any] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keep),
    "ReduceL2": lambda x, axes, keep: x.norm(2, axes, keep),
}


@EXAMPLES
@given(data=st.data(), operator=st.sampled_from(sorted(REDUCTIONS)), keep=st.booleans(), ties=st.booleans())
def test_reductions_over_any_axes(data: st.DataObject, operator: str, keep: bool, ties: bool) -> None:
    """With ties: equal values share what they get, as torch's amax has it."""
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=4))
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    signed = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    x = rng.integers(1, 3, shape).astype("f4") if ties else rng.normal(size=shape).astype("f4")
    reduce = REDUCTIONS[operator]
    drawn = node(operator, "x_ axes", keepdims=int(keep))
    assert_as_torch([drawn], {"x_": x}, {"axes": ints(*signed)}, lambda t, w: reduce(w["x_"], tuple(axes), keep), rng)


@EXAMPLES
@given(data=st.data())
def test_slices_of_any_bounds_and_steps(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    bound = st.integers(-8, 8) | st.just(2**31 - 1) | st.just(-(2**31))
    cuts = [data.draw(st.tuples(bound, bound, st.sampled_from([-3, -2, -1, 1, 2, 3]))) for _ in axes]
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype("f4")
    numbers = np.arange(x.size).reshape(shape)
    index: list[Any] = [slice(None)] * len(shape)
    for axis, (start, end, step) in zip(axes, cuts, strict=True):
        index[axis] = slice(start, end, step)
    chosen = numbers[tuple(index)].copy()
    frozen = {name: ints(*values) for name, values in zip("set", zip(*cuts, strict=True), strict=True)}
    slicing = node("Slice", "x_ s e a t")
    assert_as_torch(
        [slicing], {"x_": x}, {**frozen, "a": ints(*axes)}, lambda t, w: w["x_"].reshape(-1)[t.tensor(chosen)], rng
    )


@EXAMPLES
@given(data=st.data(), mode=st.sampled_from(["constant", "reflect", "edge"]))
def test_padding_by_any_widths(data: st.DataObject, mode: str) -> None:
    """Constant padding may be negative, which cuts; numpy says where each element comes from."""
    shape = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    least = -1 if mode == "constant" else 0
    widths = [tuple(data.draw(st.integers(least, size - 1)) for _ in range(2)) for size in shape]
    if any(sum(width) + size < 1 for width, size in zip(widths, shape, strict=True)):
        return
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype("f4")
    grown = [(max(before, 0), max(after, 0)) for before, after in widths]
    numbers = np.arange(1, x.size + 1).reshape(shape)
    padded = np.pad(numbers, grown, mode=mode)  # type: ignore[call-overload]  # a string is a mode
    inside = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for (before, after), size in zip(widths, padded.shape, strict=True)
    )
    source = padded[inside]
    pads = ints(*(before for before, _ in widths), *(after for _, after in widths))
    assert_as_torch(
        [node("Pad", "x_ p", mode=mode)],
        {"x_": x},
        {"p": pads},
        lambda t, w: t.cat([t.zeros(1, dtype=t.float64), w["x_"].reshape(-1)])[t.tensor(source)],
        rng,
    )


@EXAMPLES
@given(data=st.data())
def test_gathers_of_any_indices(data: st.DataObject) -> None:
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    grid = data.draw(st.lists(SIZES, max_size=2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    x = rng.normal(size=shape).astype("f4")
    indices = np.asarray(rng.integers(-shape[axis], shape[axis], grid))
    chosen = np.take(np.arange(x.size).reshape(shape), indices, axis=axis)

    def forward(t: Any, w: Any) -> Any:
        return w["x_"].reshape(-1)[t.tensor(chosen)]

    # an index that is computed from the input is known only while the graph runs
    zero = [node("ReduceSum", "x", "q", keepdims=0), node("Cast", "q", "n", to=TensorProto.INT64)]
    late = [*zero, node("Add", "i n", "j")]
    for nodes, index in (([], "i"), (late, "j")):
        gather = node("Gather", f"x_ {index}", axis=axis)
        assert_as_torch([*nodes, gather], {"x_": x}, {"i": indices}, forward, rng)


@EXAMPLES
@given(data=st.data())
def test_splits_of_any_sizes_give_each_part_its_gradient(data: st.DataObject) -> None:
    """Parts are stacked in another order; one may be left out."""
    sizes = data.draw(st.lists(SIZES, min_size=2, max_size=4))
    other = data.draw(SIZES)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(other, sum(sizes))).astype("f4")
    order = data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(1, len(sizes)))]
    parts = " ".join(f"p{place}" for place in range(len(sizes)))
    nodes = [
        node("Split", "x_ s", parts, axis=-1),
        node("Concat", " ".join(f"p{place}" for place in order), axis=1),
    ]
    assert_as_torch(
        nodes,
        {"x_": x},
        {"s": ints(*sizes)},
        lambda t, w: t.cat([w["x_"].split(sizes, 1)[place] for place in order], 1),
        rng,
    )
