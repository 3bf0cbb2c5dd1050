"""Guarded steps: clipping as torch's, caps, and steps that are not taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from edge_agent.model.session import Session
from edge_agent.model.step_inputs import initial_buffers
from edge_agent.wire.manifest import OptimiserName
from server_bridge.bundles.checks import for_training
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.losses import Weighing
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.gradients.training_graph import Plan, training_graph
from tests.bundles.nets import CNN2D_TRAINABLE, Array, classified, cnn2d, initialisers, mlp

MLP = ["a.w", "a.b", "b.w", "b.b"]
PLAIN = Objective("cross-entropy")
optimisers = pytest.mark.parametrize("optimiser", OPTIMISERS)


@dataclass
class Loop:
    """A training graph whose outputs are its next inputs; ``said`` has its other outputs."""

    plan: Plan
    model: onnx.ModelProto

    def __post_init__(self) -> None:
        made = training_graph(Forward.read(for_training(self.model)), "y", self.plan)
        self._session, self.spec = Session("test", made.model.SerializeToString(), {}, threads=1), made.spec
        given = initialisers(self.model)
        self.state = dict(initial_buffers(made.spec, given)[0])
        self.fixed = {f"base.{name}": given[name] for name in made.spec.trainable if made.spec.anchored}
        self.said: dict[str, float] = {}
        self.steps = 0

    def step(self, x: Array, labels: Array, rate: float = 0.05, **scalars: float) -> None:
        self.steps += 1
        values = {**self.spec.defaults, "learning_rate": rate, "step": float(self.steps), **scalars}
        feeds: dict[str, Any] = {"x": x, "label": labels, **self.state, **self.fixed}
        feeds |= {name: np.array(values[name], np.float32) for name in self.spec.scalars}
        outputs = self._session.run(feeds)
        self.said = {name: float(outputs[name]) for name in ("loss", *self.spec.reports)}
        self.state = {name: outputs[f"out.{name}"] for name in self.state}


def loop(optimiser: OptimiserName, trainable: Sequence[str] = MLP, **plan: Any) -> Loop:
    return Loop(Plan("g", trainable, plan.pop("objective", PLAIN), optimiser, **plan), mlp())


def same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def length(values: Sequence[Array]) -> float:
    return float(np.sqrt(sum(np.square(value.astype("f8")).sum() for value in values)))


@optimisers
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_step_that_is_not_finite_leaves_everything_and_says_so(optimiser: OptimiserName, bad: float) -> None:
    data, guarded = classified(mlp(), 16), loop(optimiser)
    guarded.step(data["x"], data["label"])
    before, x = dict(guarded.state), data["x"].copy()
    if np.abs(bad) < np.inf:
        x *= bad
    else:
        x[3, 2] = bad
    guarded.step(x, data["label"])
    assert guarded.said["skipped"] == 1
    assert guarded.said["update_norm"] == 0
    assert same(before, guarded.state)
    guarded.step(data["x"], data["label"])
    assert guarded.said["skipped"] == 0
    assert not same(before, guarded.state)


@optimisers
@pytest.mark.parametrize("scalar", [{"clip_norm": 0.5}, {"update_norm_cap": 1e-3}])
def test_bounded_step_is_guarded_as_well(optimiser: OptimiserName, scalar: dict[str, float]) -> None:
    data, guarded = classified(mlp(), 16), loop(optimiser)
    guarded.step(data["x"], data["label"], **scalar)
    before = dict(guarded.state)
    guarded.step(np.full_like(data["x"], np.nan), data["label"], **scalar)
    assert guarded.said["skipped"] == 1
    assert same(before, guarded.state)


@optimisers
def test_rate_that_is_out_of_all_bounds_is_no_step(optimiser: OptimiserName) -> None:
    data, guarded = classified(mlp(), 16), loop(optimiser)
    before = dict(guarded.state)
    for rate in (3e38, np.inf, np.nan):
        guarded.step(data["x"], data["label"], rate=rate)
        assert guarded.said["skipped"] == 1
        assert same(before, guarded.state)


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_running_statistics_are_guarded_too(optimiser: OptimiserName) -> None:
    names = [name for name in CNN2D_TRAINABLE if name not in ("n.mean", "n.var")]
    guarded = Loop(Plan("g", names, PLAIN, optimiser, statistics="batch"), cnn2d())
    assert guarded.spec.statistics == ["n.mean", "n.var"]
    data = classified(cnn2d(), 8)
    before = dict(guarded.state)
    guarded.step(np.full_like(data["x"], np.nan), data["label"])
    assert same(before, guarded.state)
    guarded.step(data["x"], data["label"])
    assert not np.array_equal(before["n.mean"], guarded.state["n.mean"])


@pytest.mark.parametrize("rate", [1e-15, 1e-6, 30.0])
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_norm_of_plain_descent_is_the_gradients_whatever_the_rate(rate: float, clip: float) -> None:
    """Its graph multiplies the loss's gradient with the rate."""
    data, plain, gradients = classified(mlp(), 16), loop("sgd"), loop("momentum")
    gradients.step(data["x"], data["label"])
    plain.step(data["x"], data["label"], rate, clip_norm=clip)
    exact = length([gradients.state[f"momentum.{name}"] for name in MLP])
    assert exact > 0.1
    assert plain.said["gradient_norm"] == pytest.approx(exact, rel=1e-5)
    assert plain.said["update_norm"] == pytest.approx(rate * (min(exact, clip) if clip else exact), rel=1e-4)
    assert plain.said["skipped"] == 0.0


@optimisers
def test_reports_are_the_norms(optimiser: OptimiserName) -> None:
    data, guarded = classified(mlp(), 16), loop(optimiser)
    gradients = loop("momentum")
    gradients.step(data["x"], data["label"])
    for number in range(3):
        before = {name: guarded.state[name] for name in MLP}
        guarded.step(data["x"], data["label"])
        moved = length([guarded.state[name] - before[name] for name in MLP])
        assert guarded.said["update_norm"] == pytest.approx(moved, rel=1e-4)
        if number == 0:
            exact = length([gradients.state[f"momentum.{name}"] for name in MLP])
            assert guarded.said["gradient_norm"] == pytest.approx(exact, rel=1e-5)
    assert set(guarded.said) == {"loss", "gradient_norm", "update_norm", "skipped"}


@optimisers
def test_update_is_never_longer_than_its_cap(optimiser: OptimiserName) -> None:
    data, free, capped = classified(mlp(), 16), loop(optimiser), loop(optimiser)
    for _ in range(4):
        before = {name: capped.state[name] for name in MLP}
        free.step(data["x"], data["label"])
        capped.step(data["x"], data["label"], update_norm_cap=0.002)
        moved = length([capped.state[name] - before[name] for name in MLP])
        assert moved <= 0.002 * 1.001
        assert capped.said["update_norm"] == pytest.approx(moved, rel=1e-3)
    one, two = loop(optimiser), loop(optimiser)
    one.step(data["x"], data["label"])
    two.step(data["x"], data["label"], update_norm_cap=1e6)
    for name in one.state:
        np.testing.assert_allclose(one.state[name], two.state[name], rtol=1e-6, atol=1e-9)


@pytest.mark.oracle
@optimisers
@pytest.mark.parametrize("clip", [0.05, 0.4, 1e3])
def test_clipping_is_torchs(optimiser: OptimiserName, clip: float) -> None:
    import torch

    torch.set_num_threads(1)
    data, ours = classified(mlp(), 16), loop(optimiser)
    weights = {name: torch.tensor(initialisers(mlp())[name], dtype=torch.float64) for name in MLP}
    for tensor in weights.values():
        tensor.requires_grad_()
    kinds: dict[str, Any] = {
        "sgd": lambda t: torch.optim.SGD(t, 0.05),
        "momentum": lambda t: torch.optim.SGD(t, 0.05, momentum=0.9),
        "adam": lambda t: torch.optim.Adam(t, 0.05),
        "adamw": lambda t: torch.optim.AdamW(t, 0.05),
    }
    descent, x, f = kinds[optimiser](list(weights.values())), torch.tensor(data["x"]).double(), torch.nn.functional
    for _ in range(10):
        descent.zero_grad()
        logits = f.linear(f.relu(x @ weights["a.w"] + weights["a.b"]), weights["b.w"], weights["b.b"])
        f.cross_entropy(logits, torch.tensor(data["label"])).backward()  # type: ignore[no-untyped-call]  # torch's
        norm = float(torch.nn.utils.clip_grad_norm_(list(weights.values()), clip))
        descent.step()
        ours.step(data["x"], data["label"], clip_norm=clip)
        assert ours.said["gradient_norm"] == pytest.approx(norm, rel=2e-5)
    for name in MLP:
        np.testing.assert_allclose(ours.state[name], weights[name].detach().numpy(), rtol=0, atol=3e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_weight_decay_is_torchs_and_nothing_unless_set(optimiser: OptimiserName) -> None:
    import torch

    data, ours, plain, unset = classified(mlp(), 16), *(loop(optimiser, weight_decay=w) for w in (True, False, True))
    weights = {name: torch.tensor(initialisers(mlp())[name], dtype=torch.float64) for name in MLP}
    for tensor in weights.values():
        tensor.requires_grad_()
    kinds: dict[str, Any] = {
        "sgd": lambda t: torch.optim.SGD(t, 0.05, weight_decay=0.1),
        "momentum": lambda t: torch.optim.SGD(t, 0.05, momentum=0.9, weight_decay=0.1),
        "adam": lambda t: torch.optim.Adam(t, 0.05, weight_decay=0.1),
    }
    descent, x, f = kinds[optimiser](list(weights.values())), torch.tensor(data["x"]).double(), torch.nn.functional
    for _ in range(10):
        descent.zero_grad()
        logits = f.linear(f.relu(x @ weights["a.w"] + weights["a.b"]), weights["b.w"], weights["b.b"])
        f.cross_entropy(logits, torch.tensor(data["label"])).backward()  # type: ignore[no-untyped-call]  # torch's
        descent.step()
        ours.step(data["x"], data["label"], weight_decay=0.1)
        plain.step(data["x"], data["label"])
        unset.step(data["x"], data["label"])
    for name in MLP:
        np.testing.assert_allclose(ours.state[name], weights[name].detach().numpy(), rtol=0, atol=3e-6)
        np.testing.assert_allclose(unset.state[name], plain.state[name], rtol=0, atol=1e-6)


@optimisers
def test_proximal_term_pulls_to_the_base(optimiser: OptimiserName) -> None:
    data = classified(mlp(), 16)
    free, pulled, none = (loop(optimiser, anchored=True) for _ in range(3))
    assert "proximal" in free.spec.scalars
    plain = loop(optimiser)
    for _ in range(15):
        free.step(data["x"], data["label"])
        pulled.step(data["x"], data["label"], proximal=3.0)
        plain.step(data["x"], data["label"])
    base = initialisers(mlp())
    away = {k: length([run.state[name] - base[name] for name in MLP]) for k, run in (("f", free), ("p", pulled))}
    assert away["p"] < 0.7 * away["f"]
    for name in MLP:
        np.testing.assert_allclose(free.state[name], plain.state[name], rtol=0, atol=1e-6)
    none.state = {**none.state, "a.w": base["a.w"] + 1}
    none.step(data["x"], data["label"], proximal=0.0)
    without = none.said["loss"]
    none.state = {**loop(optimiser, anchored=True).state, "a.w": base["a.w"] + 1}
    none.step(data["x"], data["label"], proximal=0.5)
    assert none.said["loss"] == pytest.approx(without + 0.25 * base["a.w"].size, rel=1e-5)


@optimisers
def test_batch_where_nothing_counts_changes_nothing(optimiser: OptimiserName) -> None:
    data, ignoring = classified(mlp(), 6), loop(optimiser, objective=Objective("cross-entropy", Weighing(ignored=-1)))
    assert ignoring.spec.ignore_index == -1
    ignoring.step(data["x"], data["label"])
    before = dict(ignoring.state)
    ignoring.step(data["x"], np.full(6, -1))
    assert (ignoring.said["loss"], ignoring.said["skipped"], ignoring.said["gradient_norm"]) == (0.0, 1.0, 0.0)
    assert same(before, ignoring.state)


@optimisers
def test_bounds_make_no_difference_where_nothing_reaches_them(optimiser: OptimiserName) -> None:
    """The branch without bounds and the one with them are the same step."""
    data, free, bounded = classified(mlp(), 16), loop(optimiser), loop(optimiser)
    for _ in range(5):
        free.step(data["x"], data["label"])
        bounded.step(data["x"], data["label"], clip_norm=1e9, update_norm_cap=1e9)
    for name in free.state:
        np.testing.assert_allclose(free.state[name], bounded.state[name], rtol=1e-6, atol=1e-9)
    assert free.said == pytest.approx(bounded.said)
