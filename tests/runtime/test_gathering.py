"""Many reads of the source as one transaction, and every one of them as if it had been alone."""

import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.faults import FaultState, step
from edge_agent.errors import DataError
from edge_agent.link.database import open_database
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.gathering import gather, put_together
from edge_agent.runtime.pipeline import Recordable
from edge_agent.runtime.screen import Screen
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Served
from edge_agent.wire.manifest import TensorSpec
from tests.drift.faults.sensors import manifest_of, params_of
from tests.runtime.bench import Parts, samples

WEIGHTS = ("a" * 64, "b" * 64)


def item(first: int, count: int, weights: str, labels: list[int], *, bare: bool = False) -> Recordable:
    """Samples of a batch, and labels, perhaps of others."""
    batch = samples(first, count)
    if bare:
        batch = SampleBatch(batch.ids, batch.times, batch.features)
    outputs = np.arange(first, first + count, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    served = Served(outputs, "c" * 64, weights, 1, "root", embeddings=-outputs)
    return Recordable(batch if count else None, served if count else None, [Label(f"s{k}", 0) for k in labels])


@st.composite
def streams(draw: st.DrawFn) -> list[Recordable]:
    """Batches of any size by two models, whose labels come before, with or after them, or twice."""
    first, items = 0, []
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(0, 5))
        labels = draw(st.lists(st.integers(0, first + count + 3), max_size=6))
        items.append(item(first, count, draw(st.sampled_from(WEIGHTS)), labels, bare=draw(st.booleans())))
        first += count
    return items


@given(streams())
def test_nothing_is_lost_or_moved_between_models(items: list[Recordable]) -> None:
    parts, labels = put_together(items)
    assert [label for one in items for label in one.labels] == labels
    for _, served in parts:
        np.testing.assert_array_equal(served.embeddings, -served.outputs)
    seen = [
        (name, time_s, *row, served.weights, tuple(batch.features["x"][place]))
        for batch, served in parts
        for place, (name, time_s, row) in enumerate(zip(batch.ids, batch.times, served.outputs.tolist(), strict=True))
    ]
    alone = [
        (
            name,
            one.batch.times[place],
            *one.served.outputs[place].tolist(),
            one.served.weights,
            tuple(one.batch.features["x"][place]),
        )
        for one in items
        if one.batch is not None and one.served is not None
        for place, name in enumerate(one.batch.ids)
    ]
    assert seen == alone
    for batch, _ in parts:
        assert {len(column) for column in (batch.groups, batch.holdouts, batch.tasks) if column} <= {len(batch.ids)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gathering")


@settings(max_examples=15, deadline=None)
@given(items=streams())
def test_the_store_holds_the_same_as_after_one_transaction_each(
    items: list[Recordable], folder: Path, bundle: Bundle
) -> None:
    found = []
    for groups in ([items], [[one] for one in items]):
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        parts = Parts(place, bundle)
        for group in groups:
            batches, labels = put_together(group)
            for batch, served in batches:
                parts.store.add(batch, served, 0.0)
            parts.store.label(labels, 0.0)
        rows = parts.store.labelled_since(0, 1000)
        counts = parts.store.counts
        found.append((sorted((row.id, row.weights, row.label, row.time_s) for row in rows), counts))
        parts.close()
    assert found[0] == found[1]


def test_a_batch_of_odd_columns_stands_alone_and_is_refused(tmp_path: Path, bundle: Bundle) -> None:
    good, odd = item(0, 2, WEIGHTS[0], []), item(2, 2, WEIGHTS[0], [])
    assert odd.batch is not None
    odd.batch.times.pop()
    batches, _ = put_together([good, odd, item(4, 2, WEIGHTS[0], [])])
    assert [batch.ids for batch, _ in batches] == [["s0", "s1"], ["s2", "s3"], ["s4", "s5"]]
    parts = Parts(tmp_path, bundle)
    with pytest.raises(DataError, match="2 sample ids"):
        parts.store.add(*batches[1], 0.0)
    parts.close()


def test_no_more_is_gathered_than_told_and_nothing_is_waited_for() -> None:
    waiting: queue.Queue[Recordable] = queue.Queue()
    for first in range(0, 40, 4):
        waiting.put(item(first, 4, WEIGHTS[0], []))
    assert len(gather(waiting, waiting.get(), most_samples=10)) == 3
    assert len(gather(waiting, waiting.get(), most_samples=1)) == 1
    assert len(gather(waiting, waiting.get(), most_samples=10_000)) == 6
    assert waiting.empty()


WIDTH = 10_000
"""Values a sample: four samples are more than are put side by side."""


def wide(first: int, count: int) -> Recordable:
    x = np.random.default_rng(first).normal(size=(count, WIDTH)).astype(np.float32)
    ids, rows = [f"s{first + row}" for row in range(count)], np.arange(count, dtype=np.float32)[:, None]
    served = Served(rows, "c" * 64, WEIGHTS[0], 1, "root")
    return Recordable(SampleBatch(ids, [float(first + row) for row in range(count)], {"x": x}), served, [])


def stored(place: Path, groups: list[list[Recordable]]) -> tuple[list[str], NDArray[np.float32]]:
    """What a store gives back once it has been opened again."""
    place.mkdir()
    inputs = [TensorSpec(name="x", dtype="float32", shape=["batch", WIDTH])]
    for group in [*groups, []]:
        db = open_database(place / "samples.db", synchronous="NORMAL")
        given_by: dict[str, Any] = {"proof_share": 0.0, "max_samples": 100, "label_wait_s": 1e9}
        store = SampleStore(db, inputs=inputs, classes=None, **given_by)
        for batch, served in put_together(group)[0] if group else []:
            store.add(batch, served, 0.0)
        found = store.feature_set(None, 100)
        db.close()
    return found.ids, found.features["x"]


def test_wide_samples_stay_where_they_are_and_are_stored_as_if_they_had_come_alone(tmp_path: Path) -> None:
    items = [wide(0, 4), wide(4, 4), wide(2, 4), wide(8, 1)]  # of the third, two are stored already
    items[1].batch.features["x"][1, 7] = np.nan  # type: ignore[union-attr]
    ((batch, _),) = put_together(items)[0]
    assert [len(portion["x"]) for portion in batch.portions] == [4, 4, 4, 1]
    assert all(portion["x"] is item.batch.features["x"] for portion, item in zip(batch.portions, items, strict=True))  # type: ignore[union-attr]

    together = stored(tmp_path / "together", [items])
    alone = stored(tmp_path / "alone", [[item] for item in items])

    assert together[0] == alone[0] == ["s0", "s1", "s2", "s3", "s4", "s6", "s7", "s8"]
    np.testing.assert_array_equal(together[1], alone[1])
    apart = stored(tmp_path / "apart", [[items[0], items[1]]])
    np.testing.assert_array_equal(apart[1][:4], items[0].batch.features["x"])  # type: ignore[union-attr]


def test_what_is_not_finite_is_found_in_its_portion() -> None:
    items = [wide(0, 4), wide(4, 4), wide(8, 4)]
    items[1].batch.features["x"][2, 5] = np.inf  # type: ignore[union-attr]
    ((batch, _),) = put_together(items)[0]
    manifest = manifest_of((WIDTH,))
    nothing = np.zeros((40, WIDTH))
    params = params_of(nothing, manifest)
    seen = Screen(params, ("x0",)).seen(replace(batch, portions=[{"x0": one["x"]} for one in batch.portions]))
    assert seen is not None
    assert [len(one) for one in seen] == [4, 4, 4]
    state, broken = FaultState.start(params), []
    for one in seen:
        state, screened = step(params, state, one)
        broken.append(None if screened.faulty is None else np.argwhere(screened.faulty).tolist())
    assert broken == [None, [[2, 5]], None]
    assert Screen(params, ("absent",)).seen(batch) is None
