"""What the scalars of a training graph may be."""

import pytest

from edge_agent.wire.manifest import TrainingGraphSpec
from edge_agent.wire.scalars import settable, unfit_scalar

GRAPH = TrainingGraphSpec(
    name="momentum",
    file="train/momentum.onnx",
    loss="pseudo-label",
    optimiser="momentum",
    trainable=["w"],
    state=["momentum"],
    scalars=["learning_rate", "step", "momentum", "clip_norm", "confidence", "odd"],
)


def test_learning_rate_and_step_are_the_steps_own() -> None:
    assert settable(GRAPH) == ("momentum", "clip_norm", "confidence", "odd")
    assert "no scalar 'learning_rate' to set (it has 'momentum'" in unfit_scalar(GRAPH, {"learning_rate": 0.1})


@pytest.mark.parametrize(
    "given", [{}, {"momentum": 0.0}, {"momentum": 0.999}, {"clip_norm": 1e9}, {"confidence": 1.0}, {"odd": -7.0}]
)
def test_values_in_range_are_fit(given: dict[str, float]) -> None:
    assert unfit_scalar(GRAPH, given) == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"momentum": 1.0}, "scalar 'momentum' is 1.0, outside [0, 1)"),
        ({"momentum": -0.1}, "outside [0, 1)"),
        ({"clip_norm": -1.0}, "scalar 'clip_norm' is -1.0, outside 0 and above"),
        ({"clip_norm": float("inf")}, "scalar 'clip_norm' is inf"),
        ({"confidence": 1.1}, "outside [0, 1]"),
        ({"odd": float("nan")}, "scalar 'odd' is nan, outside what is finite"),
        ({"momentum": 0.5, "weight_decay": 0.1}, "no scalar 'weight_decay'"),
    ],
)
def test_others_are_named(given: dict[str, float], words: str) -> None:
    assert words in unfit_scalar(GRAPH, given)
