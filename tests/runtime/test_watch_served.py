"""What is kept of served samples until the monitors judge them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edge_agent.drift.observed import Columns, Observed, narrowed
from edge_agent.runtime.watch_batches import ServedBatches
from edge_agent.runtime.watch_held import Shown
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_served import ServedViews
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import Prepared, Served

SIZE, WIDTH = 4, 3
COLUMNS: Columns = (np.array([2]),)
WHOLE, NARROW = SimpleNamespace(name="one", batch_size=SIZE), SimpleNamespace(name="one", batch_size=SIZE)
WATCHED = cast(Any, SimpleNamespace(monitor=WHOLE))
ACTIVE = cast(Prepared, SimpleNamespace(tasks=()))
READINGS = np.arange(2 * SIZE * WIDTH, dtype=np.float32).reshape(-1, WIDTH)


def rules(*, narrow: bool = True, watches: bool = True) -> WatchRules:
    found = SimpleNamespace(
        narrow={"one": (COLUMNS, NARROW)} if narrow else {},
        manifest=SimpleNamespace(inputs=[SimpleNamespace(name="x")]),
        served=(WATCHED,) if watches else (),
        answers=None,
        inputs_alone=False,
    )
    return cast(WatchRules, found)


def part(*, screened: bool = True, tasks: list[str | None] | None = None) -> tuple[SampleBatch, Served]:
    """Two portions, and a broken reading in a column that nobody looks at."""
    count = len(READINGS)
    faulty = np.zeros(READINGS.shape, np.bool_)
    faulty[1, 0] = True
    batch = SampleBatch(
        [f"s{place}" for place in range(count)],
        [float(place) for place in range(count)],
        {},
        tasks=tasks or [],
        faulty=faulty,
        portions=[{"x": READINGS[:3]}, {"x": READINGS[3:]}],
        screened=screened,
    )
    return batch, Served(READINGS[:, :2].copy(), "b" * 64, "w" * 64, 1, "root")


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("tasks", [None, [None] * 2 * SIZE])
def test_only_the_columns_that_are_looked_at_are_judged(held: bool, tasks: list[str | None] | None) -> None:
    views = ServedViews(rules())
    batch, made = part(tasks=tasks)
    shown = views.shown(batch, made) if held else Shown(batch, made)
    if held and tasks is None:
        assert shown.size_bytes == READINGS[:, 2].nbytes
    whole = views.add(shown, ACTIVE)
    assert whole.ids == batch.ids
    assert np.array_equal(whole.outputs, made.outputs)
    taken = views.take(WATCHED)
    assert taken is not None
    monitor, seen = taken
    assert cast(Any, monitor) is NARROW
    assert np.array_equal(seen.features, READINGS[:, 2:])
    assert np.array_equal(seen.outputs, made.outputs)
    assert seen.ids == batch.ids
    assert seen.broken_rows is not None
    assert np.flatnonzero(seen.broken_rows).tolist() == [1]
    assert views.take(WATCHED) is None


@pytest.mark.parametrize(("narrow", "screened"), [(False, True), (True, False)])
def test_whole_samples_are_kept_where_all_is_looked_at_or_nobody_knows_what_is_finite(
    narrow: bool, screened: bool
) -> None:
    views = ServedViews(rules(narrow=narrow))
    batch, made = part(screened=screened)
    views.add(views.shown(batch, made), ACTIVE)
    taken = views.take(WATCHED)
    assert taken is not None
    assert cast(Any, taken[0]) is WHOLE
    assert np.array_equal(taken[1].features, READINGS)


def test_features_that_nobody_looks_at_are_not_kept() -> None:
    views = ServedViews(rules(narrow=False, watches=False))
    assert not views
    assert views.shown(*part()).size_bytes == 0


def test_samples_of_which_all_is_kept_join_the_others_by_what_is_looked_at() -> None:
    waiting = ServedBatches(SIZE, COLUMNS)
    numbers = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    known = Observed(["a", "b"], np.zeros(2), numbers, numbers, finite=True)
    unknown = replace(known, ids=["c", "d"], features=np.array([[np.nan, 8.0, 9.0], [1.0, 1.0, 1.0]]), finite=False)
    waiting.add(narrowed(known, COLUMNS), unknown)
    whole = waiting.take()
    assert whole is not None
    assert waiting.is_narrow(whole)
    assert whole.features.tolist() == [[3.0], [6.0], [9.0], [1.0]]
    assert whole.broken_rows is not None
    assert whole.broken_rows.tolist() == [False, False, True, False]
