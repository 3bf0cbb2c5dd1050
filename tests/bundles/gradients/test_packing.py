"""Small tensors side by side."""

import numpy as np
import pytest

from edge_agent.wire.manifest import OptimiserName
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.guards import Step
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.packing import SMALL_MAX, small_tensors
from server_bridge.bundles.gradients.training_graph import Plan, training_graph
from tests.bundles.gradients.test_guards import MLP, Loop
from tests.bundles.nets import classified, mlp


def test_two_or_more_small_tensors_are_packed_and_large_ones_not() -> None:
    shapes = {"a": (3, 4), "b": (5,), "c": (SMALL_MAX + 1,), "d": (2, 2, 2)}
    assert list(small_tensors(["a", "b", "c", "d"], shapes).shapes) == ["a", "b", "d"]
    assert small_tensors(["a", "b", "d"], shapes).size == 25
    assert not small_tensors(["a", "c"], shapes).shapes
    assert not small_tensors(["a", "packed"], shapes | {"packed": (1,)}).shapes
    assert Step({}, {}).pack.size == 0


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.parametrize("scalars", [{}, {"clip_norm": 0.3, "update_norm_cap": 0.1}])
def test_packed_and_separate_tensors_take_the_same_steps(
    optimiser: OptimiserName, scalars: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("g", MLP, Objective("cross-entropy"), optimiser, weight_decay=True)
    packed = Loop(plan, mlp())
    monkeypatch.setattr("server_bridge.bundles.gradients.packing.SMALL_MAX", 20)  # the matrices are larger
    mixed = Loop(plan, mlp())
    monkeypatch.setattr("server_bridge.bundles.gradients.packing.SMALL_MAX", 0)
    separate = Loop(plan, mlp())
    assert [loop.spec.packed for loop in (packed, mixed, separate)] == [MLP, ["a.b", "b.b"], None]
    data = classified(mlp(), 16)
    for loop in (packed, mixed, separate):
        for _ in range(6):
            loop.step(data["x"], data["label"], weight_decay=0.1, **scalars)
    for name in MLP:
        np.testing.assert_allclose(packed.state[name], separate.state[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(mixed.state[name], separate.state[name], rtol=1e-5, atol=1e-7)
    assert packed.said == pytest.approx(separate.said, rel=1e-5)


def test_only_adams_family_packs() -> None:
    forward = Forward.read(mlp())
    names: tuple[OptimiserName, ...] = ("sgd", "momentum", "adam")
    graphs = [training_graph(forward, "y", Plan("g", MLP, Objective("cross-entropy"), name)) for name in names]
    assert [graph.spec.packed for graph in graphs] == [None, None, MLP]
