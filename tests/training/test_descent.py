"""A descent gives the same whether its steps are taken one by one or several at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.model.series import STEPS_AT_ONCE
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.descent import Diverged, Place, Watch, descend
from edge_agent.training.schedule import ConstantRate, Schedule
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, mlp, save_npz

ROWS, BATCH = 300, 7
"""43 batches a pass, the last of 6 rows."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("small")
    data = save_npz(folder / "c.npz", **classified(mlp(), 240))
    return build_bundle(mlp(), data, BuildSettings(["*"], "cross-entropy", optimisers=["adam"]), folder / "bundle")


def alone(bundle: Bundle) -> Bundle:
    """The bundle as its manifest would be without graphs of several steps."""
    graphs = [graph.model_copy(update={"series": None}) for graph in bundle.manifest.training]
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"training": graphs}))


class Looking:
    """Goes on until so many steps are done."""

    def __init__(self, most: int = 10**9) -> None:
        self.places: list[Place] = []
        self._most = most

    def stepped(self, place: Place) -> bool:
        self.places.append(place)
        return place.steps < self._most


class Rising:
    """A rate of its own for every batch."""

    in_time_order = True

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def begin_epoch(self) -> None:
        self.seen.append(b"epoch")

    def rate(self, features: Any) -> float:
        self.seen.append(features["x"].tobytes())
        return 0.001 * (1 + len(self.seen) % 5)

    def metrics(self) -> dict[str, int | float]:
        return {}


def descended(
    bundle: Bundle, schedule: Schedule, watch: Watch, *, bad_row: int | None = None, epochs: int = 3
) -> tuple[Place, dict[str, bytes]]:
    data = classified(mlp(), ROWS, seed=4)
    if bad_row is not None:
        data["x"][bad_row, 2] = np.inf
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    place = descend(
        step, {"x": data["x"]}, data["label"], schedule, epochs=epochs, batch_size=BATCH, seed=3, watch=watch
    )
    return place, {name: value.tobytes() for name, value in step.weights().items()}


def test_it_ends_where_single_steps_end(small: Bundle) -> None:
    many, single = Looking(), Looking()
    assert descended(small, ConstantRate(0.02), many) == descended(alone(small), ConstantRate(0.02), single)
    assert [place.steps for place in single.places] == [*range(1, 3 * 43 + 1)]
    steps = [place.steps for place in many.places]
    assert steps == [done + 43 * epoch for epoch in range(3) for done in (STEPS_AT_ONCE, 42, 43)]
    assert [single.places[done - 1] for done in steps] == many.places


def test_every_batch_is_asked_for_its_rate_in_order(small: Bundle) -> None:
    many, single = Rising(), Rising()
    assert descended(small, many, Looking()) == descended(alone(small), single, Looking())
    assert many.seen == single.seen


def test_it_stops_after_the_steps_that_were_taken_at_once(small: Bundle) -> None:
    place, _ = descended(small, ConstantRate(0.02), Looking(most=5))
    assert (place.steps, place.epochs) == (STEPS_AT_ONCE, STEPS_AT_ONCE / 43)


def test_a_loss_that_is_not_finite_ends_it_in_the_same_epoch(small: Bundle) -> None:
    for bundle in (small, alone(small)):
        with pytest.raises(Diverged, match="the loss in epoch 1"):
            descended(bundle, ConstantRate(0.02), Looking(), bad_row=150)
