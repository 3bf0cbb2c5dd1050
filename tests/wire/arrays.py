"""Strategies for named float32 tensors and the specs that they fit."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.tensors import Weights
from tests.wire.strategies import names

shapes = st.lists(st.integers(1, 6), max_size=3)
tensor_names = (names | st.sampled_from(["w", "scale.w", "code.w", "code.scale.w"])).filter(
    lambda name: name != "__metadata__"
)


@st.composite
def weights(draw: st.DrawFn, *, finite: bool = True) -> Weights:
    """Small tensors of any float32 values, seeded; one of them longer than an int8 block."""
    chosen = draw(st.lists(tensor_names, min_size=1, max_size=4, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.0, 1e-42, 1e-8, 1.0, 1e4, 1e38]))
    tensors = {name: _normal(rng, draw(shapes), scale) for name in chosen}
    if draw(st.booleans()):
        tensors[chosen[0]] = _normal(rng, [3, 700], scale)
    if not finite:
        tensors[chosen[-1]].reshape(-1)[0] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return tensors


def specs_of(tensors: Weights) -> list[TrainableSpec]:
    return [TrainableSpec(name=name, dtype="float32", shape=list(tensor.shape)) for name, tensor in tensors.items()]


def _normal(rng: np.random.Generator, shape: list[int], scale: float) -> NDArray[np.float32]:
    return np.asarray(rng.uniform(-3, 3, size=shape) * scale, dtype=np.float32)
